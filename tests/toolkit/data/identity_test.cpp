#include "toolkit/data/identity.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "support/fixture.h"
#include "toolkit/core/errors.h"
#include "toolkit/data/synthetic_source.h"

using namespace dtk;

namespace {

DataClass class_of(int64_t label, const std::string& name, const std::vector<std::string>& samples,
                   int64_t bytes = 10) {
  ClassDigest digest;
  for (size_t i = 0; i < samples.size(); ++i) digest.add(samples[i], static_cast<int64_t>(i), bytes);
  return digest.finish(label, name);
}

DataIdentity cats_and_dogs() {
  return {{}, {class_of(0, "cat", {"1.png", "2.png"}), class_of(1, "dog", {"1.png"})}};
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("data identity: equal data have no differences") {
  CHECK(differences(cats_and_dogs(), cats_and_dogs()).empty());
  CHECK(fingerprint(cats_and_dogs()) == fingerprint(cats_and_dogs()));
}

TEST_CASE("data identity: what has changed is said class by class") {
  const DataIdentity then = cats_and_dogs();
  DataIdentity now = then;
  now.classes[0].name = "kitty";
  CHECK(differences(then, now) == Lines{"class \"cat\" is called \"kitty\""});
  CHECK(fingerprint(then) != fingerprint(now));

  now = {{},
         {class_of(0, "bird", {"1.png", "9.png"}), class_of(1, "cat", {"1.png", "2.png"}),
          class_of(2, "dog", {"1.png"})}};
  CHECK(differences(then, now) == Lines{"class \"bird\" is new, with 2 samples",
                                        "class \"cat\" had the label 0 and has 1",
                                        "class \"dog\" had the label 1 and has 2"});
  CHECK(differences(now, then) == Lines{"class \"bird\" is gone, which had 2 samples",
                                        "class \"cat\" had the label 1 and has 0",
                                        "class \"dog\" had the label 2 and has 1"});

  now = then;  // an image moved from one class to the other
  now.classes = {class_of(0, "cat", {"1.png"}), class_of(1, "dog", {"1.png", "2.png"})};
  CHECK(differences(then, now) ==
        Lines{"class \"cat\" has 1 sample, and had 2", "class \"dog\" has 2 samples, and had 1"});

  now = then;  // renamed, and of another size
  now.classes[0] = class_of(0, "cat", {"1.png", "3.png"});
  CHECK(differences(then, now) == Lines{"class \"cat\" has 2 samples as before, but not the same"});
  now.classes[0] = class_of(0, "cat", {"1.png", "2.png"}, 11);
  CHECK(differences(then, now) == Lines{"class \"cat\" has 2 samples as before, but not the same"});
}

TEST_CASE("data identity: files by name and size, labels by position") {
  const DataIdentity then = {{{"a.npy", 100}, {"labels.npy", 20}}, numbered_classes({0, 2, 2, 0})};
  REQUIRE(then.classes.size() == 2);
  CHECK(then.classes[1].name == "2");
  CHECK(then.classes[1].label == 2);
  DataIdentity now = then;
  now.files[0].bytes = 101;
  CHECK(differences(then, now) == Lines{"a.npy has 101 bytes, and had 100"});
  now.files[0] = {"b.npy", 100};
  CHECK(differences(then, now) == Lines{"b.npy (100 bytes) is in the place of a.npy (100 bytes)"});
  now.files.pop_back();
  CHECK(differences(then, now) == Lines{"1 file in the place of 2 files"});
  now = then;
  now.classes = numbered_classes({0, 2, 0, 2});
  CHECK(differences(then, now) == Lines{"class \"0\" has 2 samples as before, but not the same",
                                        "class \"2\" has 2 samples as before, but not the same"});
}

TEST_CASE("data identity: contents are compared where both have them") {
  const SyntheticSource some({.size = 3, .channels = 1, .height = 2, .width = 2, .classes = 3});
  const SyntheticSource more({.size = 4, .channels = 1, .height = 2, .width = 2, .classes = 3});
  CHECK(contents_sha256(some) == contents_sha256(some));
  CHECK(contents_sha256(some) != contents_sha256(more));
  DataIdentity then = cats_and_dogs(), now = then;
  then.contents = contents_sha256(some);
  CHECK(differences(then, now).empty());
  now.contents = contents_sha256(more);
  CHECK(differences(then, now) ==
        Lines{"names and sizes are as they were, and the contents of a sample have changed"});
}

TEST_CASE("data identity: written and read back") {
  DataIdentity identity = cats_and_dogs();
  identity.files = {{"a.npy", 100}};
  identity.held_out_below = 0xfedcba9876543210U;  // no double holds it
  identity.contents = std::string(64, 'a');
  const std::string text = identity_text(identity);
  const DataIdentity read = parse_identity(text, "data.json");
  CHECK(read.files == identity.files);
  CHECK(read.classes == identity.classes);
  CHECK(read.held_out_below == identity.held_out_below);
  CHECK(read.contents == identity.contents);
  CHECK(identity_text(read) == text);

  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    return test::error_text<FileError>(
        [&] { parse_identity(changed.replace(at, from.size(), to), "data.json"); });
  };
  const std::string not_it = "; it is not what a run writes about its data";
  CHECK(error("\"version\": 1", "\"version\": 2") ==
        "data.json: version 2; this program reads version 1; use the program that wrote it");
  CHECK(error("\"samples\": 2", "\"samples\": 3") ==
        "data.json: its fingerprint is not that of the rest" + not_it);
  CHECK(error("\"samples\": 2", "\"samples\": -2") ==
        "data.json: \"samples\" is not a whole number from 0" + not_it);
  CHECK(error("\"name\": \"cat\"", "\"name\": 3") == "data.json: \"name\" is not a text" + not_it);
  CHECK(error("18364758544493064720", "99364758544493064720") ==
        "data.json: \"held_out_below\" is not a whole number of 64 bits" + not_it);
  CHECK(error("\"files\"", "\"file\"") == "data.json: has no \"files\"" + not_it);
}

TEST_CASE("data identity: names of classes, unless they are numbers") {
  CHECK(names_in(cats_and_dogs()) == Lines{"cat", "dog"});
  CHECK(names_in({{}, numbered_classes({0, 1, 1})}).empty());
  CHECK(names_in({{}, numbered_classes({0, 2})}).empty());
  CHECK(names_in({{}, {class_of(0, "7", {"1.png"}), class_of(1, "8", {"1.png"})}}) == Lines{"7", "8"});
}
