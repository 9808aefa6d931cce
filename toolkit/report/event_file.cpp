#include "toolkit/report/event_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "toolkit/core/format.h"
#include "toolkit/io/endian.h"

namespace dtk {
namespace {

constexpr std::string_view name_before_time = "events.out.tfevents.";
constexpr std::string_view name_after_time = ".dit-train";

// --- protobuf: fields are written as tag (number and wire type), then value ------------------------------

enum class Wire : uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_tag(std::string& out, uint64_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<uint64_t>(wire));
}

void put_integer(std::string& out, uint64_t field, int64_t value) {
  put_tag(out, field, Wire::varint);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_double(std::string& out, uint64_t field, double value) {
  put_tag(out, field, Wire::fixed64);
  append_little_endian(out, std::bit_cast<uint64_t>(value), sizeof value);
}

void put_float(std::string& out, uint64_t field, float value) {
  put_tag(out, field, Wire::fixed32);
  append_little_endian(out, std::bit_cast<uint32_t>(value), sizeof value);
}

void put_bytes(std::string& out, uint64_t field, std::string_view value) {
  put_tag(out, field, Wire::bytes);
  put_varint(out, value.size());
  out += value;
}

// Numbers of the fields, by message.
namespace event {
constexpr uint64_t wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace session_log {
constexpr uint64_t status = 1;
constexpr int64_t start = 1;
}  // namespace session_log
namespace summary {
constexpr uint64_t value = 1;
}
namespace value {
constexpr uint64_t tag = 1, simple_value = 2, image = 4;
}
namespace image {
constexpr uint64_t height = 1, width = 2, colorspace = 3, encoded = 4;
}

std::string event_at(int64_t step, double unix_seconds) {
  std::string text;
  put_double(text, event::wall_time, unix_seconds);
  put_integer(text, event::step, step);
  return text;
}

// --- records ----------------------------------------------------------------------------------------------

constexpr std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t castagnoli_reflected = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? castagnoli_reflected : 0);
    table[byte] = crc;
  }
  return table;
}

// A checksum of data that holds checksums is weak, so TFRecord stores it changed.
uint32_t masked(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

std::string record(std::string_view data) {
  std::string text;
  append_little_endian(text, data.size(), 8);
  append_little_endian(text, masked(crc32c(text)), 4);
  text += data;
  append_little_endian(text, masked(crc32c(data)), 4);
  return text;
}

// The time in the name of an event file of ours; 0 for any other name.
long long time_in(const std::string& name) {
  if (!name.starts_with(name_before_time)) return 0;
  return std::strtoll(name.c_str() + name_before_time.size(), nullptr, 10);
}

std::filesystem::path new_file_in(FileSystem& files, const std::filesystem::path& folder,
                                  double unix_seconds) {
  files.create_directories(folder);
  auto time = static_cast<long long>(std::floor(unix_seconds));
  for (const std::string& name : files.list(folder)) time = std::max(time, time_in(name) + 1);
  return folder / fmt::format("{}{:010}{}", name_before_time, time, name_after_time);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = crc_table();
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~crc;
}

EventFile::EventFile(FileSystem& files, const std::filesystem::path& folder, double unix_seconds,
                     int64_t first_step)
    : path_(new_file_in(files, folder, unix_seconds)), file_(files.create(path_)) {
  std::string version;
  put_double(version, event::wall_time, unix_seconds);
  put_bytes(version, event::file_version, "brain.Event:2");
  write(version);
  std::string status;
  put_integer(status, session_log::status, session_log::start);
  std::string session = event_at(first_step, unix_seconds);
  put_bytes(session, event::session_log, status);
  write(session);
}

void EventFile::write(std::string_view event) {
  const std::string text = record(event);
  file_->write(text.data(), text.size());
}

void EventFile::scalars(int64_t step, double unix_seconds, const Scalars& values) {
  std::string all;
  for (const auto& [tag, number] : values) {
    std::string one;
    put_bytes(one, value::tag, tag);
    put_float(one, value::simple_value, static_cast<float>(number));
    put_bytes(all, summary::value, one);
  }
  std::string text = event_at(step, unix_seconds);
  put_bytes(text, event::summary, all);
  write(text);
}

void EventFile::image(int64_t step, double unix_seconds, const std::string& tag, int64_t height,
                      int64_t width, int64_t channels, std::string_view png) {
  std::string picture;
  put_integer(picture, image::height, height);
  put_integer(picture, image::width, width);
  put_integer(picture, image::colorspace, channels);
  put_bytes(picture, image::encoded, png);
  std::string one, all;
  put_bytes(one, value::tag, tag);
  put_bytes(one, value::image, picture);
  put_bytes(all, summary::value, one);
  std::string text = event_at(step, unix_seconds);
  put_bytes(text, event::summary, all);
  write(text);
}

}  // namespace dtk
