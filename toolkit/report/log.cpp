#include "toolkit/report/log.h"

#include "toolkit/io/json.h"

namespace dtk {
namespace {

bool ends_within_a_line(FileSystem& files, const std::filesystem::path& path) {
  const uint64_t size = files.exists(path) ? files.size(path) : 0;
  if (size == 0) return false;
  char last = 0;
  files.read_into(path, size - 1, &last, 1);
  return last != '\n';
}

}  // namespace

RunLog::RunLog(FileSystem& files, const std::filesystem::path& path) {
  const bool torn = ends_within_a_line(files, path);
  file_ = files.append(path);
  if (torn) file_->write("\n", 1);
}

std::string RunLog::write(Logged event, const Fields& fields) {
  nlohmann::ordered_json json;
  json["event"] = policies::text_of(event);
  for (const auto& [name, value] : fields) {
    std::visit([&, &key = name](const auto& plain) { json[key] = plain; }, value);
  }
  // Names of files need not be UTF-8.
  std::string line = json_line(json) + "\n";
  file_->write(line.data(), line.size());
  line.pop_back();
  return line;
}

bool is_log_step(int64_t step, int64_t every) {
  if (step >= every) return step % every == 0;
  while (step % 10 == 0) step /= 10;
  return step == 1 || step == 2 || step == 5;
}

}  // namespace dtk
