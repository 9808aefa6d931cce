#include <dtk/toolkit/run_log.h>

#include <nlohmann/json.hpp>

namespace dtk {

RunLog::RunLog(FileSystem& files, const std::filesystem::path& path) : file_(files.append(path)) {}
RunLog::~RunLog() = default;

void RunLog::write(const std::string& event, const Fields& fields) {
  nlohmann::ordered_json json;
  json["event"] = event;
  for (const auto& [name, value] : fields) {
    std::visit([&, &key = name](const auto& plain) { json[key] = plain; }, value);
  }
  const std::string line = json.dump() + "\n";
  file_->write(line.data(), line.size());
}

}  // namespace dtk
