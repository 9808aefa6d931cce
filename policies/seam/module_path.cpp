#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <dtk/policies/module_path.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace dtk::policies {
namespace {

thread_local std::string current_path;

// Nodes are numbered in the order in which their thread made them, so that a scope is an interval.
struct NodePaths {
  struct Begin {
    uint64_t node;
    std::string path;
  };
  std::mutex mutex;
  std::map<uint64_t, std::vector<Begin>> by_thread;
};

NodePaths& node_paths() {
  static auto* paths = new NodePaths;
  return *paths;
}

std::atomic<int> node_paths_guards{0};

void note_path() {
  if (node_paths_guards == 0) return;
  const std::lock_guard lock(node_paths().mutex);
  auto& begins = node_paths().by_thread[at::RecordFunction::currentThreadId()];
  const uint64_t next = at::sequence_number::peek();
  if (!begins.empty() && begins.back().node == next) begins.pop_back();
  begins.push_back({next, current_path});
}

std::string path_of(const torch::autograd::Node& node) {
  const std::lock_guard lock(node_paths().mutex);
  const auto thread = node_paths().by_thread.find(node.thread_id());
  if (thread == node_paths().by_thread.end()) return {};
  const auto& begins = thread->second;
  const auto after =
      std::upper_bound(begins.begin(), begins.end(), node.sequence_nr(),
                       [](uint64_t number, const NodePaths::Begin& begin) { return number < begin.node; });
  return after == begins.begin() ? std::string() : std::prev(after)->path;
}

}  // namespace

ModulePathScope::ModulePathScope(std::string_view path)
    : previous_(std::exchange(current_path, std::string(path))) {
  note_path();
}

ModulePathScope::~ModulePathScope() {
  current_path = std::move(previous_);
  note_path();
}

const std::string& module_path() {
  return current_path;
}

NodePathsGuard::NodePathsGuard() {
  ++node_paths_guards;
}

NodePathsGuard::~NodePathsGuard() {
  if (--node_paths_guards > 0) return;
  const std::lock_guard lock(node_paths().mutex);
  node_paths().by_thread.clear();
}

BackwardPlace backward_place() {
  const auto node = torch::autograd::get_current_node();
  return node != nullptr ? BackwardPlace{true, path_of(*node)} : BackwardPlace{};
}

Run run_with_module_path() {
  return [](std::string_view path, const ModuleFn& fn, Tensors&& inputs) {
    ModulePathScope scope(path);
    return fn(std::move(inputs));
  };
}

}  // namespace dtk::policies
