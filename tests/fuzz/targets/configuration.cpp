#include <cstdlib>
#include <string>

#include "fuzz/target.h"
#include "toolkit/config/config_io.h"

namespace dtk::fuzz {
namespace {

/// What is accepted is printed, and what is printed has to be read as the same.
void read_configuration(std::string_view input) {
  const LoadedConfig loaded = parse_config(std::string(input), "input.toml", {});
  const std::string printed = print_config(loaded);
  if (print_config({parse_config(printed, "printed.toml", {}).config, {}}) !=
      print_config({loaded.config, {}}))
    std::abort();
}

}  // namespace

const Target configuration = {read_configuration, linear<1024, 4096>};

}  // namespace dtk::fuzz
