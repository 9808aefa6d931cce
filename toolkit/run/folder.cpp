#include "toolkit/run/folder.h"

#include <dtk/policies/advice.h>

#include <algorithm>
#include <random>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/io/json.h"
#include "toolkit/report/history.h"
#include "toolkit/report/log.h"
#include "toolkit/train/save_load.h"

namespace dtk {
namespace {

using Path = std::filesystem::path;

constexpr char config_name[] = "config.toml";
constexpr char lock_name[] = "lock";
constexpr char events_name[] = "tensorboard";
constexpr char samples_name[] = "samples";
constexpr char mark_prefix[] = "seen-by-ranks-";
constexpr const char* records[] = {"memory.json", "report.html"};

bool is_checkpoint_of(const Path& run, const Path& checkpoint) {
  return std::filesystem::weakly_canonical(checkpoint).parent_path() ==
         std::filesystem::weakly_canonical(run / checkpoints_folder);
}

// The damage of a checkpoint on one line; "" if it is whole, or of a newer version, which is no damage.
std::string damage_in(FileSystem& files, const Path& checkpoint) try {
  return listed(damage_of(files, checkpoint), "; ", "; ");
} catch (const FileError&) {
  return "";
}

}  // namespace

ResumePoint open_resume_point(FileSystem& files, const Path& checkpoint, const Ranks* ranks) {
  Checkpoint opened = open_checkpoint(files, checkpoint, ranks);
  LoadedConfig written = written_config(opened);
  std::optional<DataIdentity> data = written_data(opened);
  return {std::move(opened), std::move(written), std::move(data)};
}

void check_shared(const Path& out, FileSystem& files, Ranks& ranks) {
  if (!files.keeps_content()) return;  // nobody writes
  ranks.meet("the folder train.out");  // which is not made where one has been refused
  constexpr char meeting[] = "the look at train.out";
  if (ranks.leads()) {
    const std::string mark = fmt::format("{}{:08x}", mark_prefix, std::random_device{}());
    files.create_directories(out);
    files.create(out / mark)->close();
    try {
      ranks.leader_says("mark in train.out", mark);
      ranks.meet(meeting);
    } catch (...) {
      try {
        files.remove_all(out / mark);
      } catch (const FileError&) {  // the first error is the one to report
      }
      throw;
    }
    return files.remove_all(out / mark);
  }
  if (!files.exists(out / ranks.leader_says("mark in train.out", ""))) {
    throw ConfigError("train.out = " + in_quotes(out.string()) +
                      ": the folder of this name is not the one that rank 0 writes into, and each rank "
                      "writes files of checkpoints there; name a folder that all hosts share, and start "
                      "the ranks in the same folder where it is relative");
  }
  ranks.meet(meeting);
}

RunFolder::RunFolder(const LoadedConfig& loaded, const Path& resume, const RunWorld& world)
    : loaded_(loaded),
      files_(world.files),
      out_(without_slash(loaded.config.train.out)),
      continued_(!resume.empty() && is_checkpoint_of(out_, resume)),
      takes_over_(world.takes_over) {
  if (continued_ || files_.exists(out_ / lock_name)) take_lock();
}

void RunFolder::check(const ResumePoint* resume) {
  if (!continued_) check_free();
  if (resume != nullptr) check_resume(*resume);
}

std::vector<std::string> RunFolder::claim(const DataIdentity& data) {
  if (!lock_) {
    files_.create_directories(out_);
    take_lock();
    check_free();  // again: another process may have come first
  }
  std::vector<std::string> notes;
  if (!continued_ && files_.exists(out_ / config_name)) {
    notes.push_back(fmt::format("{} holds an earlier start that came to no {}; this run takes its place",
                                out_.string(), takes_over_ ? "checkpoint" : "step"));
    files_.remove_all(out_ / log_name);
    files_.remove_all(out_ / events_name);
    files_.remove_all(out_ / samples_name);
    for (const char* record : records) files_.remove_all(out_ / record);
  }
  for (const PassedOver& entry : passed_over_) {
    const Path aside = set_aside(files_, entry.folder);
    notes.push_back(fmt::format(
        "passed over {}, which is damaged: {}. It is now called {}; remove it once it is of no use",
        entry.folder.string(), entry.damage, aside.string()));
  }
  files_.create_directories(out_ / checkpoints_folder);
  files_.sync_directory(out_);
  if (out_.has_parent_path()) files_.sync_directory(out_.parent_path());  // out's own entry
  write_config();
  write_file_atomically(files_, out_ / data_file_name, identity_text(data));
  return notes;
}

void RunFolder::write_config() const {
  write_file_atomically(files_, out_ / config_name, print_config(loaded_));
}

std::string RunFolder::elsewhere() const {
  return "name another folder: --set train.out=" + out_.string() + "-2";
}

void RunFolder::take_lock() {
  lock_ = files_.try_lock(out_ / lock_name);
  // The file may be removed by hand under a run that holds it.
  if (lock_) folder_lock_ = files_.try_lock_folder(out_);
  if (folder_lock_) return;
  throw ConfigError(
      fmt::format("{}: another process is training into this folder; wait until it has ended, or {}",
                  out_.string(), elsewhere()));
}

// Only a folder with a lock was made by a run: a config.toml alone may be the user's own.
bool RunFolder::holds_only_a_run(const std::vector<std::string>& names, bool or_samples) const {
  std::vector<std::string> own = {lock_name, log_name, events_name, checkpoints_folder};
  for (const char* name : {config_name, data_file_name})
    own.insert(own.end(), {name, std::string(name) + ".tmp"});
  for (const char* record : records) own.insert(own.end(), {record, std::string(record) + ".tmp"});
  if (or_samples) own.emplace_back(samples_name);
  const bool only_own =
      std::all_of(names.begin(), names.end(), [&](const std::string& name) { return contains(own, name); });
  return only_own && contains(names, lock_name);
}

// A process that ended before its first checkpoint and its first line of the log, killed or out of memory,
// leaves nothing worth keeping; where a checkpoint is asked for if there is one, nor does what came to none.
bool RunFolder::came_to_nothing(const std::vector<std::string>& names) const {
  if (!holds_only_a_run(names, takes_over_)) return false;
  if (latest_checkpoint(files_, out_ / checkpoints_folder)) return false;
  if (takes_over_ || !contains(names, log_name)) return true;
  const RunHistory history(files_.read(out_ / log_name, max_log_bytes));
  return history.steps().empty() && history.unreadable_lines() == 0;
}

// A mark is of ranks that were killed while they looked.
std::vector<std::string> RunFolder::names_in_it() const try {
  std::vector<std::string> names = files_.list(out_);
  std::erase_if(names, [](const std::string& name) { return name.starts_with(mark_prefix); });
  return names;
} catch (const FileError& error) {
  throw ConfigError(fmt::format("train.out = \"{}\": {}; {}", out_.string(), error.what(),
                                files_.exists(out_) ? elsewhere() : "allowed: a new or an empty folder"));
}

void RunFolder::check_free() const {
  const std::vector<std::string> names = names_in_it();
  if (names.empty() || came_to_nothing(names)) return;
  const bool is_run =
      contains(names, config_name) &&
      (contains(names, lock_name) || contains(names, log_name) || contains(names, checkpoints_folder));
  if (!is_run) {
    throw ConfigError(
        fmt::format("train.out = \"{}\" is a folder that holds other things than a run: {}; allowed: a new "
                    "or an empty folder; {}",
                    out_.string(), first_few(names, 3), elsewhere()));
  }
  const bool resumable = latest_checkpoint(files_, out_ / checkpoints_folder).has_value();
  const std::string advice = resumable ? "; continue it with --resume " + shell_quoted(out_.string())
                             : holds_only_a_run(names, true)
                                 ? " that has no checkpoint; begin again in its place with --resume auto"
                                 : " that has no checkpoint; remove the folder if nothing in it is of use";
  throw ConfigError(fmt::format("{} already holds a run{}, or {}", out_.string(), advice, elsewhere()));
}

// A run goes on from the end of its folder: continued from an older checkpoint, the newer ones of the
// abandoned branch would still be "latest" and outlive what is trained now. Damaged ones are in nobody's way:
// that they are may be why an older one is wanted.
void RunFolder::check_branch(const Checkpoint& resumed) {
  const auto all = checkpoints_by_step(files_, out_ / checkpoints_folder);
  for (auto newer = all.rbegin(); newer != all.rend() && newer->first > resumed.step(); ++newer) {
    const std::string damage = damage_in(files_, newer->second);
    if (damage.empty()) {
      throw ConfigError(fmt::format(
          "--resume {}: {} holds the newer {}; continue that with --resume {}, or start a branch in another "
          "folder: --set train.out={}",
          resumed.folder().string(), out_.string(), newer->second.string(),
          shell_quoted(passed_over_.empty() ? out_.string() : newer->second.string()),
          shell_quoted(out_.string() + "-2")));
    }
    passed_over_.push_back({newer->second, damage});
  }
}

void RunFolder::check_resume(const ResumePoint& resume) {
  const Checkpoint& checkpoint = resume.checkpoint;
  if (continued_) check_branch(checkpoint);
  const std::string name = checkpoint.folder().string();
  RunConfig written = resume.written.config;
  policies::CpuPrecision& choice = written.policies.precision.cpu;
  if (choice == policies::CpuPrecision::probe)  // a device leaves it open
    choice = loaded_.config.policies.precision.cpu;
  const std::string problem =
      resume_problem(name, (checkpoint.folder() / config_name).string(), written, loaded_.config);
  if (!problem.empty()) throw ConfigError(problem);
  const int threads = threads_of(checkpoint);
  if (threads != *loaded_.config.train.threads && !loaded_.config.train.allow_thread_change) {
    throw ConfigError(fmt::format(
        "{0} was written with train.threads = {1}, this run has {2}, and results depend on it; {3}, "
        "or accept other rounding: {4}",
        name, threads, *loaded_.config.train.threads,
        policies::advise("train.threads", std::to_string(threads)),
        policies::advise("train.allow_thread_change", "true")));
  }
}

}  // namespace dtk
