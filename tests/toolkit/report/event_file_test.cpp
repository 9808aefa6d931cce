// Event files byte by byte; tests/integration/exchange/tensorboard_test.py reads them with TensorBoard itself.
#include "toolkit/report/event_file.h"

#include <cstring>

#include "support/catch.h"
#include "support/files/memory_file_system.h"

using namespace dtk;

namespace {

uint64_t little_endian(const std::string& text, size_t at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(text.at(at + i))} << (8 * i);
  return value;
}

uint64_t masked(uint32_t crc) {
  return static_cast<uint32_t>(((crc >> 15) | (crc << 17)) + 0xA282EAD8U);
}

// The data of each record; checks length and both checksums.
std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> found;
  for (size_t at = 0; at < file.size();) {
    const uint64_t length = little_endian(file, at, 8);
    CHECK(little_endian(file, at + 8, 4) == masked(crc32c(file.substr(at, 8))));
    found.push_back(file.substr(at + 12, length));
    REQUIRE(found.back().size() == length);
    CHECK(little_endian(file, at + 12 + length, 4) == masked(crc32c(found.back())));
    at += 16 + length;
  }
  return found;
}

template <class Number>
std::string bytes_of(Number number) {
  std::string text(sizeof number, '\0');
  std::memcpy(text.data(), &number, sizeof number);
  return text;
}

}  // namespace

TEST_CASE("crc32c gives the values of RFC 3720") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43);
}

TEST_CASE("an event file begins with its version and the step that comes first") {
  test::MemoryFileSystem files;
  files.create_directories("run");
  const EventFile file(files, "run/tensorboard", 1700000000.75, 301);
  CHECK(file.path() == "run/tensorboard/events.out.tfevents.1700000000.dit-train");
  const auto found = records(files.read(file.path()));
  REQUIRE(found.size() == 2);
  CHECK(found[0] == "\x09" + bytes_of(1700000000.75) + "\x1a\x0d" + "brain.Event:2");
  // Step 301 as a varint; session_log (7) {status (1): START (1)}.
  CHECK(found[1] == "\x09" + bytes_of(1700000000.75) + "\x10\xad\x02" + "\x3a\x02\x08\x01");
}

TEST_CASE("scalars and images are the messages that TensorBoard knows") {
  test::MemoryFileSystem files;
  EventFile file(files, "tensorboard", 1.0, 1);
  file.scalars(5, 2.0, {{"a", 0.5}, {"bc", -1.0}});
  file.image(7, 3.0, "grid", 2, 300, 3, "PNG");
  const auto found = records(files.read(file.path()));
  REQUIRE(found.size() == 4);
  const std::string a = std::string("\x0a\x01") + "a\x15" + bytes_of(0.5F);
  const std::string bc = std::string("\x0a\x02") + "bc\x15" + bytes_of(-1.0F);
  CHECK(found[2] == "\x09" + bytes_of(2.0) + "\x10\x05\x2a" + char(4 + a.size() + bc.size()) + "\x0a" +
                        char(a.size()) + a + "\x0a" + char(bc.size()) + bc);
  const std::string image = std::string("\x08\x02\x10\xac\x02\x18\x03\x22\x03") + "PNG";
  const std::string value = std::string("\x0a\x04") + "grid\x22" + char(image.size()) + image;
  CHECK(found[3] == "\x09" + bytes_of(3.0) + "\x10\x07\x2a" + char(2 + value.size()) + "\x0a" +
                        char(value.size()) + value);
}

TEST_CASE("the name of a new event file comes after all others of the folder") {
  test::MemoryFileSystem files;
  const EventFile first(files, "tensorboard", 2000.0, 1);
  const EventFile same_second(files, "tensorboard", 2000.9, 1);
  const EventFile clock_set_back(files, "tensorboard", 1000.0, 1);
  write_file_atomically(files, "tensorboard/notes", "");
  const EventFile later(files, "tensorboard", 3000.0, 1);
  CHECK(files.list("tensorboard") ==
        std::vector<std::string>{
            "events.out.tfevents.0000002000.dit-train", "events.out.tfevents.0000002001.dit-train",
            "events.out.tfevents.0000002002.dit-train", "events.out.tfevents.0000003000.dit-train", "notes"});
}
