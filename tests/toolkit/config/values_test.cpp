// Values of more than one piece or notation: lists of strings, sizes, and texts without quotes.
#include <optional>

#include "support/catch.h"
#include "support/config_text.h"
#include "support/error_text.h"
#include "toolkit/config/config_io.h"
#include "toolkit/core/errors.h"

using dtk::ConfigError;
using dtk::LoadedConfig;
using Strings = std::vector<std::string>;

namespace {

using dtk::test::error_in;
using dtk::test::read;
using dtk::test::runnable;

Strings targets(const std::string& value) {
  return read(runnable + "policies.checkpoint.targets = " + value).config.policies.checkpoint.targets;
}

std::string targets_error(const std::string& value) {
  return error_in(runnable + "policies.checkpoint.targets = " + value);
}

std::string targets_error_of_set(const std::string& value) {
  return error_in(runnable, {"policies.checkpoint.targets=" + value});
}

const std::string a_list = "a list of strings, such as [\"layers.*\"]; empty: the modules that repeat";

std::optional<int64_t> size_of(const std::string& text) {
  const auto budget = read(runnable, {"memory.budget=\"" + text + "\""}).config.memory.budget;
  return budget ? std::optional(budget->bytes) : std::nullopt;
}

std::string size_error(const std::string& value) {
  return error_in(runnable + "memory.budget = " + value);
}

const std::string a_size =
    "a number of bytes, such as \"24GB\", \"24GiB\" or \"24e9\", or \"80%\" of the device present";

}  // namespace

TEST_CASE("config values: a list of strings, on one line or several, may be empty") {
  CHECK(read(runnable).config.policies.checkpoint.targets == Strings{"blocks.*"});
  CHECK(targets("[\"blocks.0\", 'final_layer']") == Strings{"blocks.0", "final_layer"});
  CHECK(targets("[\n  \"blocks.0\",  # one\n  \"blocks.1\",\n]") == Strings{"blocks.0", "blocks.1"});
  CHECK(targets("[]") == Strings{});
  const LoadedConfig loaded = read(runnable, {"policies.checkpoint.targets=[\"blocks.0\"]"});
  CHECK(loaded.config.policies.checkpoint.targets == Strings{"blocks.0"});
  CHECK(text_of(loaded.origins.at("policies.checkpoint.targets")) == "--set");
  CHECK(read(runnable + "policies.precision.fp32 = []", {"policies.precision.fp32=default"})
            .config.policies.precision.fp32 == Strings{"final_layer"});
}

TEST_CASE("config values: what is not a list of strings is refused") {
  const std::string place = "base.toml:3:31: policies.checkpoint.targets";
  CHECK(targets_error("\"blocks.*\"") == place + " = \"blocks.*\" is a string; wanted: " + a_list);
  CHECK(targets_error("3") == place + " = 3 is an integer; wanted: " + a_list);
  CHECK(targets_error("[1, 2]") == place + " = [1, 2] is an array; wanted: " + a_list);
  CHECK(targets_error("[\"blocks.0\", 2]") == place + " is an array; wanted: " + a_list);
  CHECK(targets_error("[[\"blocks.0\"]]") == place + " is an array; wanted: " + a_list);
  CHECK(targets_error("[\"blocks.0\", []]") == place + " is an array; wanted: " + a_list);
  CHECK(error_in(runnable + "policies.checkpoint.targets = {a = \"b\"}") ==
        "base.toml:3:21: policies.checkpoint.targets is a table; wanted: " + a_list);
  const std::string set = "--set policies.checkpoint.targets=";
  CHECK(targets_error_of_set("blocks.*") ==
        set + "blocks.*: blocks.* is not a TOML value; wanted: " + a_list);
  CHECK(targets_error_of_set("[blocks.0]") ==
        set + "[blocks.0]: [blocks.0] is not a TOML value; wanted: " + a_list);
  CHECK(targets_error_of_set("\"blocks.0\"") ==
        set + "\"blocks.0\": policies.checkpoint.targets = \"blocks.0\" is a string; wanted: " + a_list);
  CHECK(targets_error_of_set("[[\"blocks.0\"]]") ==
        set + "[[\"blocks.0\"]]: policies.checkpoint.targets is an array; wanted: " + a_list);
  CHECK(targets_error_of_set("") == set + ": policies.checkpoint.targets has no value; wanted: " + a_list);
}

TEST_CASE("config values: a list where one value is wanted is shown as it was written") {
  CHECK(error_in(runnable + "data.batch = []") ==
        "base.toml:3:14: data.batch = [] is an array; wanted: an integer in [1, inf)");
  CHECK(error_in(runnable + "data.kind = [\"idx\", \"images\"]") ==
        "base.toml:3:13: data.kind = [\"idx\", \"images\"] is an array; wanted: one of idx | images | "
        "latents | synthetic | frames | conversations | scenes");
}

TEST_CASE("config values: a printed list reads back equal, whatever its strings hold") {
  for (const Strings& list :
       {Strings{}, Strings{"blocks.*"}, Strings{"a\"b", "c\\d", "e, f] # g", "h\ti\n\x7f ü", ""}}) {
    LoadedConfig loaded = read(runnable);
    loaded.config.policies.checkpoint.targets = list;
    const std::string printed = print_config(loaded);
    INFO(printed);
    CHECK(read(printed).config.policies.checkpoint.targets == list);
  }
  LoadedConfig loaded = read(runnable + "policies.checkpoint.targets = [ 'blocks.0' , \"a'b\" ]");
  CHECK_THAT(print_config(loaded), Catch::Contains("\ntargets = [\"blocks.0\", \"a'b\"]  # base.toml:3\n"));
  dtk::RunConfig other = loaded.config;
  other.policies.checkpoint.targets = {};
  const auto found = differences(loaded.config, other);
  REQUIRE(found.size() == 1);
  CHECK(found[0].a == "[\"blocks.0\", \"a'b\"]");
  CHECK(found[0].b == "[]");
}

TEST_CASE("config values: sizes are integers, or texts in powers of 1000 and of 1024") {
  CHECK_FALSE(read(runnable).config.memory.budget);
  CHECK(read(runnable + "memory.budget = 4096").config.memory.budget->bytes == 4096);
  CHECK(size_of("4096") == 4096);
  CHECK(size_of("4096 B") == 4096);
  CHECK(size_of("3kB") == 3000);
  CHECK(size_of("3KB") == 3000);
  CHECK(size_of("3KiB") == 3072);
  CHECK(size_of("2MB") == 2'000'000);
  CHECK(size_of("2 MiB") == 2'097'152);
  CHECK(size_of("2GB") == 2'000'000'000);
  CHECK(size_of("1.5 GiB") == 1'610'612'736);
  CHECK(size_of("0.25 TB") == 250'000'000'000);
  CHECK(size_of("1TiB") == int64_t{1} << 40);
  CHECK(size_of("24e9") == 24'000'000'000);
  CHECK(size_of("1.5e3 kB") == 1'500'000);
  CHECK(read(runnable, {"memory.budget=24e9"}).config.memory.budget->bytes == 24'000'000'000);
  CHECK(read(runnable + "memory.budget = 2e9").config.memory.budget->bytes == 2'000'000'000);
  CHECK(size_of("0.0015 kB") == 1);  // whole bytes, none more than asked for
  CHECK(size_of("8388607.5 TiB") == (int64_t{1} << 62) + ((int64_t{1} << 62) - (int64_t{1} << 39)));
  CHECK(read(runnable, {"memory.budget=1.5 GiB"}).config.memory.budget->bytes == 1'610'612'736);
  CHECK(read(runnable, {"memory.budget=2GB"}).config.memory.budget->bytes == 2'000'000'000);
  CHECK(read(runnable, {"memory.budget=4096"}).config.memory.budget->bytes == 4096);
  for (const char* text : {"24G", "24gb", "24 GB", "24 g", "24000 mB", "24e9b"})
    CHECK(read(runnable, {std::string("memory.budget=") + text}).config.memory.budget->bytes ==
          24'000'000'000);
  for (const char* text : {"24GiB", "24gib", "24 Gi", "24576 MIB"})
    CHECK(read(runnable, {std::string("memory.budget=") + text}).config.memory.budget->bytes == 24LL << 30);
  CHECK_FALSE(read(runnable + "memory.budget = 1", {"memory.budget=default"}).config.memory.budget);
}

TEST_CASE("config values: what is not a size is refused") {
  for (const std::string text : {"",
                                 " ",
                                 "GB",
                                 "2 gigs",
                                 "2Gbi",
                                 "2PB",
                                 "2GBs",
                                 "2  GB",
                                 " 2GB",
                                 "2GB ",
                                 "2 GB B",
                                 "1e",
                                 "1e400",
                                 "0%",
                                 "101%",
                                 "80 %",
                                 "-1%",
                                 "1,5 GB",
                                 "0x10",
                                 "-1",
                                 "-2GB",
                                 "+2GB",
                                 "nan",
                                 "inf",
                                 "infGB",
                                 "8388608 TiB",
                                 "9223372036854775808",
                                 "1000000000000000000000000 TB"}) {
    INFO(text);
    CHECK(size_error("\"" + text + "\"") ==
          "base.toml:3:17: memory.budget = \"" + text + "\" is not a size; allowed: " + a_size);
  }
  CHECK(size_error("2.5") == "base.toml:3:17: memory.budget = 2.5 is not a size; allowed: " + a_size);
  CHECK(size_error("1e30") == "base.toml:3:17: memory.budget = 1e+30 is not a size; allowed: " + a_size);
  CHECK(size_error("true") == "base.toml:3:17: memory.budget = true is a boolean; wanted: " + a_size);
  CHECK(size_error("[\"2GB\"]") ==
        "base.toml:3:17: memory.budget = [\"2GB\"] is an array; wanted: " + a_size);
  CHECK(error_in(runnable, {"memory.budget=much"}) ==
        "--set memory.budget=much: memory.budget = \"much\" is not a size; allowed: " + a_size);
}

TEST_CASE("config values: a size is at least one byte") {
  for (const std::string value : {"0", "-1", "\"0\"", "\"0 GB\"", "\"0.0005 kB\"", "\"-0\""}) {
    INFO(value);
    CHECK(size_error(value) ==
          "base.toml:3:17: memory.budget = " + value + " is out of range; allowed: (0, inf)");
  }
  CHECK(size_of("1") == 1);
}

TEST_CASE("config values: a size may be a part of the device's, until a run begins on one") {
  const LoadedConfig loaded = read(runnable, {"memory.budget=12.5%"});
  CHECK(loaded.config.memory.budget->percent == 12.5);
  CHECK_THAT(print_config(loaded), Catch::Contains("\nbudget = \"12.5%\"  # --set\n"));
  CHECK(read(print_config(loaded)).config == loaded.config);
  CHECK(read(runnable + "memory.budget = \"100%\"").config.memory.budget->percent == 100);
}

TEST_CASE("config values: a size is printed as an integer") {
  const LoadedConfig loaded = read(runnable, {"memory.budget=1.5 GiB"});
  CHECK_THAT(print_config(loaded), Catch::Contains("\nbudget = 1610612736  # --set\n"));
  CHECK(read(print_config(loaded)).config == loaded.config);
}

TEST_CASE("config values: what is given without quotes for a text is one, whatever it reads like") {
  for (const std::string value : {"7", "-1.5e3", "true", "2026-11-22", "nan", "0x1f"}) {
    const LoadedConfig loaded = read(runnable, {"train.out=" + value});
    CHECK(loaded.config.train.out == value);
    CHECK(read(dtk::print_config(loaded)).config == loaded.config);
  }
  CHECK(error_in(runnable, {"data.kind=7"}) ==
        "--set data.kind=7: data.kind = 7 is an integer; wanted: one of idx | "
        "images | latents | synthetic | frames | conversations | scenes");
}

TEST_CASE(
    "config reader: units of several ranks are of a size, and gathered ahead where weights are divided") {
  const std::string divided = runnable + "policies.shard.level = \"parameters\"\npolicies.shard.";
  CHECK(read(runnable).config.policies.shard.min_unit.bytes == 1048576);
  CHECK(read(runnable + "policies.shard.min_unit = \"64kB\"").config.policies.shard.min_unit.bytes == 64000);
  CHECK(error_in(runnable + "policies.shard.min_unit = 0") ==
        "base.toml:3:27: policies.shard.min_unit = 0 is out of range; allowed: [1, inf)");
  CHECK(read(divided + "prefetch = 0").config.policies.shard.prefetch == 0);
  CHECK(error_in(divided + "prefetch = 65") ==
        "base.toml:4:27: policies.shard.prefetch = 65 is out of range; allowed: [0, 64]");
  CHECK(error_in(runnable + "policies.shard.prefetch = 2") ==
        "base.toml:3:27: policies.shard.prefetch has no use with policies.shard.level = \"optimizer\"; "
        "remove it "
        "(what base.toml sets is taken back with --set policies.shard.prefetch=default), or change "
        "policies.shard.level");
  CHECK(read(runnable).config.policies.shard.targets == std::vector<std::string>{"*"});
  CHECK(read(runnable + "policies.shard.targets = [\"blocks.*\"]").config.policies.shard.targets ==
        std::vector<std::string>{"blocks.*"});
}

TEST_CASE("config reader: weights are sent as bf16 where autocast is asked for") {
  const std::string divided = runnable + "policies.shard.level = \"parameters\"\n";
  const std::string bf16 = "policies.shard.gather = \"bf16\"";
  CHECK(read(divided + "policies.precision.enabled = true\n" + bf16).config.policies.shard.gather ==
        dtk::policies::ShardGather::bf16);
  CHECK(error_in(divided + bf16) ==
        "base.toml:4:25: policies.shard.gather = \"bf16\" sends weights as autocast rounds them; set "
        "policies.precision.enabled = true, or set policies.shard.gather = \"fp32\"");
  CHECK(
      error_in(runnable + bf16) ==
      "base.toml:3:25: policies.shard.gather has no use with policies.shard.level = \"optimizer\"; remove it "
      "(what base.toml sets is taken back with --set policies.shard.gather=default), or change "
      "policies.shard.level");
  CHECK(error_in(divided + "policies.shard.gather = \"fp16\"") ==
        "base.toml:4:25: policies.shard.gather = \"fp16\" is not a choice; allowed: fp32 | bf16");
}

TEST_CASE("config reader: offload_min_bytes is a size, and refused where nothing is offloaded") {
  const auto text = [](const std::string& keep, const std::string& value) {
    return runnable + "policies.checkpoint.keep = " + keep +
           "\npolicies.checkpoint.offload_min_bytes = " + value;
  };
  const auto bytes = [&](const std::string& value) {
    return read(text("\"offload\"", value)).config.policies.checkpoint.offload_min_bytes.bytes;
  };
  CHECK(read(runnable).config.policies.checkpoint.offload_min_bytes.bytes == 1048576);
  CHECK(bytes("\"4MiB\"") == 4194304);
  CHECK(bytes("\"16 kB\"") == 16000);
  CHECK(bytes("0") == 0);
  CHECK(bytes("1e6") == 1000000);
  for (const char* wrong : {"\"10%\"", "\"some\"", "1.5"}) {
    CHECK(error_in(text("\"offload\"", wrong)) ==
          std::string("base.toml:4:41: policies.checkpoint.offload_min_bytes = ") + wrong +
              " is not a size; allowed: a number of bytes, such as \"1MiB\", \"4kB\" or 1048576");
  }
  CHECK(error_in(text("\"offload\"", "-1")) ==
        "base.toml:4:41: policies.checkpoint.offload_min_bytes = -1 is out of range; allowed: [0, inf)");
  CHECK(
      error_in(text("\"offload\"", "true")) ==
      "base.toml:4:41: policies.checkpoint.offload_min_bytes = true is a boolean; wanted: a number of bytes, "
      "such as \"1MiB\", \"4kB\" or 1048576");
  CHECK(error_in(text("[\"fc2_out\"]", "0")) ==
        "base.toml:4:41: policies.checkpoint.offload_min_bytes has no use with policies.checkpoint.keep = "
        "[\"fc2_out\"]; remove it (what base.toml sets is taken back with --set "
        "policies.checkpoint.offload_min_bytes=default), or change policies.checkpoint.keep");
}
