#include "toolkit/checkpoint/store.h"

#include <c10/util/StringUtil.h>
#include <dtk/policies/collectives.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <stdexcept>

#include "toolkit/checkpoint/shards.h"
#include "toolkit/core/format.h"
#include "toolkit/io/json.h"
#include "toolkit/io/safetensors.h"
#include "toolkit/io/sha256.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;

constexpr std::string_view name_prefix = "step-";
constexpr std::string_view partial_suffix = ".partial";    // being written, or being removed
constexpr std::string_view replaced_suffix = ".replaced";  // in the way of a new one of the same step
constexpr std::string_view damaged_suffix = ".damaged";    // set aside

std::string checkpoint_name(int64_t step, std::string_view suffix = "") {
  return fmt::format("{}{:08}{}", name_prefix, step, suffix);
}

/// The step of a folder name that checkpoint_name() gives for `suffix`; empty for any other name.
std::optional<int64_t> step_of(const std::string& name, std::string_view suffix = "") {
  if (!name.ends_with(suffix)) return std::nullopt;
  const std::optional<int64_t> step = step_named(name.substr(0, name.size() - suffix.size()));
  return step && name == checkpoint_name(*step, suffix) ? step : std::nullopt;  // all zeros must be there
}

int64_t checked_keep(int64_t keep) {
  if (keep >= 1) return keep;
  throw std::invalid_argument(fmt::format("at least 1 checkpoint must be kept, not {}", keep));
}

/// Hashes what passes on the way to the file.
class HashingFile : public WritableFile {
 public:
  HashingFile(FileSystem& files, const Path& path)
      : file_(files.create(path)), hashes_(files.keeps_content()) {}

  void write(const void* data, size_t bytes) override {
    file_->write(data, bytes);
    if (hashes_) hash_.update(data, bytes);
    bytes_ += bytes;
  }
  void sync() override { file_->sync(); }
  void close() override { file_->close(); }

  ManifestFile entry(const std::string& name) { return {name, bytes_, hash_.hex_digest()}; }

 private:
  const std::unique_ptr<WritableFile> file_;
  const bool hashes_;
  Sha256 hash_;
  uint64_t bytes_ = 0;
};

using WriteContent = std::function<void(WritableFile&)>;

ManifestFile write_durably(FileSystem& files, const Path& folder, const std::string& name,
                           const WriteContent& write_content) {
  HashingFile file(files, folder / name);
  write_content(file);
  file.sync();
  file.close();
  return file.entry(name);
}

void check_arguments(int64_t step, const CheckpointStore::TensorFiles& tensor_files,
                     const CheckpointStore::TextFiles& text_files) {
  if (step < 0) throw std::invalid_argument(fmt::format("a checkpoint's step is at least 0, not {}", step));
  const auto check_name = [](const std::string& name) {
    if (!is_plain_file_name(name)) {
      throw std::invalid_argument(in_quotes(name) + " cannot be the name of a file in a checkpoint");
    }
  };
  for (const auto& [name, tensors] : tensor_files) check_name(name);
  for (const auto& [name, text] : text_files) {
    check_name(name);
    if (tensor_files.count(name)) throw std::invalid_argument("two files have the name " + in_quotes(name));
  }
}

constexpr size_t kHashWords = 8;

// A file's size and SHA-256, as ranks tell each other.
std::vector<double> numbers_of(const ManifestFile& file) {
  std::vector<double> numbers = {static_cast<double>(file.bytes)};
  constexpr size_t digits = 8;
  for (size_t word = 0; word < kHashWords; ++word)
    numbers.push_back(std::stoul(file.sha256.substr(word * digits, digits), nullptr, 16));
  return numbers;
}

ManifestFile file_of(const std::string& name, const double* numbers) {
  ManifestFile file{name, static_cast<uint64_t>(numbers[0]), ""};
  for (size_t word = 1; word <= kHashWords; ++word)
    file.sha256 += fmt::format("{:08x}", static_cast<uint32_t>(numbers[word]));
  return file;
}

/// What is wrong with a file of a checkpoint, or nothing; `hashes`: whether its content is looked at.
std::string problem_with(FileSystem& files, const Path& folder, const ManifestFile& file, bool hashes) try {
  const Path path = folder / file.name;
  if (!files.exists(path)) return file.name + " is missing";
  const uint64_t bytes = files.size(path);
  if (bytes != file.bytes) return fmt::format("{} has {} bytes instead of {}", file.name, bytes, file.bytes);
  if (hashes && sha256_of_file(files, path, bytes) != file.sha256) {
    return file.name + " has changed since it was saved (its SHA-256 differs)";
  }
  return "";
} catch (const FileError& error) {
  return error.what();
}

struct Inspection {
  CheckpointManifest manifest;
  std::vector<std::string> problems;
};

/// Throws FileError for a manifest of a newer version.
Inspection inspect(FileSystem& files, const Path& folder, const Ranks* ranks = nullptr) {
  const Path path = folder / manifest_name;
  if (!files.exists(path)) return {{}, {std::string(manifest_name) + " is missing"}};
  std::string text;
  try {
    text = files.read(path);
  } catch (const FileError& error) {
    return {{}, {error.what()}};
  }
  Inspection found;
  try {
    found.manifest = parse_manifest(text, path.string());
  } catch (const DamagedManifest& error) {
    return {{}, {error.what()}};
  }
  const auto named = step_named(without_slash(folder).filename().string());
  if (has_checkpoint_name(folder) && named && *named != found.manifest.step) {
    found.problems.push_back(fmt::format("{} says step {}, and the folder's name step {}", manifest_name,
                                         found.manifest.step, *named));
  }
  int64_t index = 0;
  for (const ManifestFile& file : found.manifest.files) {
    const bool is_own = ranks == nullptr || index++ % ranks->size() == ranks->rank();
    const std::string problem = problem_with(files, folder, file, is_own);
    if (!problem.empty()) found.problems.push_back(problem);
  }
  return found;
}

bool is_whole(FileSystem& files, const Path& folder) {
  try {
    return inspect(files, folder).problems.empty();
  } catch (const FileError&) {
    return false;
  }
}

/// What to do about the damaged checkpoint `folder`.
std::string way_out(FileSystem& files, const Path& folder) {
  const auto beside = checkpoints_by_step(files, parent_of(folder));
  bool is_older = !has_checkpoint_name(folder);
  for (auto candidate = beside.rbegin(); candidate != beside.rend(); ++candidate) {
    if (is_older && is_whole(files, candidate->second)) {
      return "Name the older " + candidate->second.string() + " instead, which is whole";
    }
    is_older = is_older || candidate->second.filename() == folder.filename();
  }
  return "No older checkpoint beside it is whole; bring this one back from a copy, or train anew";
}

bool can_be_loaded(FileSystem& files, const Path& folder) {
  try {
    return is_complete_checkpoint(files, folder);
  } catch (const FileError&) {
    return false;
  }
}

}  // namespace

std::vector<int64_t> steps_to_remove(std::vector<StepState> checkpoints, int64_t keep) {
  checked_keep(keep);
  std::ranges::sort(checkpoints, std::greater(), &StepState::step);
  std::vector<int64_t> removed;
  int64_t kept = 0;
  for (const StepState& checkpoint : checkpoints) {
    if (kept == keep) {
      removed.push_back(checkpoint.step);
    } else if (checkpoint.complete) {
      ++kept;
    }
  }
  std::ranges::reverse(removed);
  return removed;
}

CheckpointStore::CheckpointStore(FileSystem& files, Path folder, int64_t keep, Ranks* ranks,
                                 uint64_t max_file_bytes)
    : files_(files),
      folder_(std::move(folder)),
      keep_(checked_keep(keep)),
      ranks_(ranks),
      max_file_bytes_(max_file_bytes) {}

CheckpointStore::Path CheckpointStore::save(int64_t step, const TensorFiles& tensor_files,
                                            const TextFiles& text_files) {
  check_arguments(step, tensor_files, text_files);
  try {
    if (leads()) {
      create_folder();
      undo_interrupted_saves();
      files_.create_directories(folder_ / checkpoint_name(step, partial_suffix));
    }
    if (ranks_ != nullptr) ranks_->all_say({}, "before a checkpoint is written");
    write_partial(step, tensor_files, text_files);
    if (leads()) {
      publish(step);
      remove_old(step);
    }
  } catch (...) {
    if (!leads()) {
      // A leader that failed removes the folder, and says why.
      if (files_.exists(folder_ / checkpoint_name(step, partial_suffix))) throw;
      throw policies::CollectiveError("while a checkpoint is written");
    }
    // A full disk should not stay full of a checkpoint that cannot be used. If even this fails, the next save
    // does it; the first error is the one to report.
    try {
      undo_interrupted_saves();
    } catch (const FileError&) {
    }
    throw;
  }
  return folder_ / checkpoint_name(step);
}

void CheckpointStore::create_folder() {
  if (files_.exists(folder_)) return;
  files_.create_directories(folder_);
  files_.sync_directory(folder_.parent_path());
}

void CheckpointStore::undo_interrupted_saves() {
  for (const std::string& name : files_.list(folder_)) {
    if (step_of(name, partial_suffix)) files_.remove_all(folder_ / name);
    const auto step = step_of(name, replaced_suffix);
    if (!step) continue;
    const Path target = folder_ / checkpoint_name(*step);
    if (files_.exists(target)) {
      files_.sync_directory(folder_);  // the new one must be durable before the old one goes
      files_.remove_all(folder_ / name);
    } else {
      files_.rename(folder_ / name, target);
    }
  }
}

std::vector<ManifestFile> CheckpointStore::write_tensors(const Path& partial, const TensorFiles& tensor_files,
                                                         TextFiles& lists) {
  const int64_t rank = ranks_ == nullptr ? 0 : ranks_->rank(), ranks = ranks_ == nullptr ? 1 : ranks_->size();
  std::vector<std::string> names;
  std::vector<ManifestFile> own;
  for (const auto& [file, tensors] : tensor_files) {
    const std::vector<std::vector<WrittenTensor>> shards = in_parts(tensors, max_file_bytes_);
    const std::vector<std::string> of_file = shard_names(file, shards.size());
    if (shards.size() > 1) lists[shard_index_name(file)] = shard_index_text(of_file, shards);
    for (size_t i = 0; i < shards.size(); ++i) {
      const int64_t writer = std::ssize(names) % ranks;
      names.push_back(of_file[i]);
      if (writer != rank) {
        send_given_tensors(writer, shards[i]);
        continue;
      }
      own.push_back(write_durably(files_, partial, of_file[i], [&shard = shards[i]](WritableFile& out) {
        write_given_tensors(out, shard, {{"format", "pt"}});
      }));
    }
  }
  return ranks_ == nullptr ? own : of_all_ranks(names, own);
}

// Only what is durable is told, so that the manifest names nothing else.
std::vector<ManifestFile> CheckpointStore::of_all_ranks(const std::vector<std::string>& names,
                                                        const std::vector<ManifestFile>& own) const {
  const auto ranks = static_cast<size_t>(ranks_->size());
  std::vector<double> numbers;
  for (const ManifestFile& file : own) {
    const std::vector<double> more = numbers_of(file);
    numbers.insert(numbers.end(), more.begin(), more.end());
  }
  constexpr size_t each = 1 + kHashWords;
  numbers.resize((names.size() + ranks - 1) / ranks * each);  // all say as many
  const auto said = ranks_->all_say(numbers, "while a checkpoint is written");
  std::vector<ManifestFile> all;
  for (size_t i = 0; i < names.size(); ++i)
    all.push_back(file_of(names[i], said[i % ranks].data() + i / ranks * each));
  return all;
}

void CheckpointStore::write_partial(int64_t step, const TensorFiles& tensor_files, TextFiles text_files) {
  const Path partial = folder_ / checkpoint_name(step, partial_suffix);
  CheckpointManifest manifest{step, write_tensors(partial, tensor_files, text_files)};
  if (!leads()) return;
  for (const auto& [name, text] : text_files) {
    manifest.files.push_back(write_durably(files_, partial, name, [&content = text](WritableFile& file) {
      file.write(content.data(), content.size());
    }));
  }
  const std::string text = manifest_text(manifest);
  write_durably(files_, partial, std::string(manifest_name),
                [&text](WritableFile& file) { file.write(text.data(), text.size()); });
  files_.sync_directory(partial);
}

void CheckpointStore::publish(int64_t step) {
  const Path target = folder_ / checkpoint_name(step);
  const Path replaced = folder_ / checkpoint_name(step, replaced_suffix);
  const bool replaces = files_.exists(target);
  if (replaces) {
    files_.rename(target, replaced);
    files_.sync_directory(folder_);
  }
  files_.rename(folder_ / checkpoint_name(step, partial_suffix), target);
  files_.sync_directory(folder_);
  if (replaces) files_.remove_all(replaced);
}

void CheckpointStore::remove_old(int64_t saved_step) {
  std::vector<StepState> states;
  for (const auto& [step, path] : checkpoints_by_step(files_, folder_)) {
    states.push_back({step, can_be_loaded(files_, path)});
  }
  for (const int64_t step : steps_to_remove(states, keep_)) {
    // A run that went back to an earlier step saves below checkpoints of its first try.
    if (step == saved_step) continue;
    // Renamed first: a process killed here leaves no half-removed folder that looks like a checkpoint.
    const Path partial = folder_ / checkpoint_name(step, partial_suffix);
    files_.rename(folder_ / checkpoint_name(step), partial);
    files_.remove_all(partial);
  }
}

Checkpoint open_checkpoint(FileSystem& files, const Path& folder, const Ranks* ranks) {
  if (!files.exists(folder)) throw FileError(folder.string() + " does not exist; no checkpoint to open");
  const Inspection found = inspect(files, folder, ranks);
  if (!found.problems.empty()) {
    throw FileError(fmt::format("{} is a damaged checkpoint:\n  {}\n{}", folder.string(),
                                c10::Join("\n  ", found.problems), way_out(files, folder)));
  }
  Checkpoint checkpoint(files, folder);
  checkpoint.step_ = found.manifest.step;
  for (const ManifestFile& file : found.manifest.files) checkpoint.names_.insert(file.name);
  return checkpoint;
}

std::vector<std::string> damage_of(FileSystem& files, const Path& folder) {
  return inspect(files, folder).problems;
}

Path Checkpoint::path_of(const std::string& file) const {
  if (has(file)) return folder_ / file;
  throw FileError(fmt::format("checkpoint {} has no file {}; it has: {}", folder_.string(), in_quotes(file),
                              c10::Join(", ", names_)));
}

bool Checkpoint::has_tensors(const std::string& file) const {
  return has(file) || has(shard_index_name(file));
}

std::vector<StoredTensor> Checkpoint::stored_tensors(const std::string& file) const {
  const std::string list = shard_index_name(file);
  if (!has(list)) return open_safetensors(*files_, path_of(file));
  return open_shards(*files_, folder_ / list,
                     [this](const Path& shard) { return open_safetensors(*files_, shard); });
}

std::vector<Path> Checkpoint::paths_of_tensors(const std::string& file) const {
  const std::string list = shard_index_name(file);
  if (!has(list)) return {path_of(file)};
  std::vector<Path> paths = {folder_ / list};
  for (const std::string& shard : read_shard_index(*files_, paths.front()).files())
    paths.push_back(folder_ / shard);
  return paths;
}

std::string Checkpoint::text(const std::string& file) const {
  return files_->read(path_of(file));
}

std::map<int64_t, Path> checkpoints_by_step(FileSystem& files, const Path& folder) {
  std::map<int64_t, Path> found;
  for (const std::string& name : files.list(folder)) {
    if (const auto step = step_of(name)) found[*step] = folder / name;
    if (const auto step = step_of(name, replaced_suffix)) found.emplace(*step, folder / name);
  }
  return found;
}

std::optional<Path> latest_checkpoint(FileSystem& files, const Path& folder) {
  const std::map<int64_t, Path> found = checkpoints_by_step(files, folder);
  if (found.empty()) return std::nullopt;
  return found.rbegin()->second;
}

bool has_checkpoint_name(const Path& folder) {
  const std::string name = folder.filename().string();
  return step_of(name) || step_of(name, replaced_suffix);
}

std::optional<int64_t> step_named(const std::string& name) {
  if (!name.starts_with(name_prefix)) return std::nullopt;
  int64_t step = 0;
  const char* const first = name.data() + name_prefix.size();
  const char* const last = name.data() + name.size();
  const auto [rest, error] = std::from_chars(first, last, step);
  return error == std::errc() && rest == last && step >= 0 ? std::optional(step) : std::nullopt;
}

Path set_aside(FileSystem& files, const Path& folder) {
  const std::string name = folder.string() + std::string(damaged_suffix);
  Path target = name;
  for (int number = 2; files.exists(target); ++number) target = name + "-" + std::to_string(number);
  files.rename(folder, target);
  files.sync_directory(folder.parent_path());
  return target;
}

}  // namespace dtk
