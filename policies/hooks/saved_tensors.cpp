#include <c10/util/Type.h>
#include <dtk/policies/internal/dispatch_keys.h>
#include <dtk/policies/internal/job_observer.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/internal/torch_versions.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <cstring>
#include <typeinfo>
#include <utility>

#include "hooks/operator_watch.h"

namespace dtk::policies {

// Lives in LibTorch's thread-local debug information: of all the thread-local state, that is what the
// engine copies to its worker threads and what a library may add to.
struct SavedTensorStack::Node final : c10::DebugInfoBase, std::enable_shared_from_this<Node> {
  Node(std::shared_ptr<SavedTensorLayer> own, SavedTensorStack under)
      : layer(std::move(own)), below(std::move(under)) {}
  const std::shared_ptr<SavedTensorLayer> layer;  // null: the stack was emptied on purpose
  const SavedTensorStack below;
};

int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

void check_unchanged(at::IntArrayRef sizes, const std::string& path, int64_t when_saved, int64_t now) {
  TORCH_CHECK(now == when_saved, "a tensor ", sizes, " saved for backward", path.empty() ? "" : " in " + path,
              " was changed in place afterwards (version ", when_saved, " when saved, ", now,
              " now), so its gradient would be wrong; make that change out of place, or after backward");
}

namespace {

const auto kKind = kSavedTensorStackInfo;

const SavedTensorStack::Node* current_node() {
  return static_cast<const SavedTensorStack::Node*>(c10::ThreadLocalDebugInfo::get(kKind));
}

// Numbers the tensor and tells the job's observer of it; 0 without one.
uint64_t watched(const at::Tensor& tensor) {
  static std::atomic<uint64_t> number{0};
  JobObserver* const watch = job_observer();
  if (watch == nullptr) return 0;
  const uint64_t id = ++number;
  watch->kept(id, tensor);
  return id;
}

// LibTorch compares versions only for tensors it saves itself; under hooks that check is ours.
class KeptTensor final : public SavedTensor, NotCopied {
 public:
  explicit KeptTensor(const at::Tensor& tensor)
      : tensor_(tensor), version_(version_of(tensor)), path_(module_path()), watched_(watched(tensor)) {}
  ~KeptTensor() override {
    JobObserver* const watch = watched_ != 0 ? job_observer() : nullptr;
    if (watch != nullptr) watch->let_go(watched_);
  }

  at::Tensor unpack() override {
    JobObserver* const watch = watched_ != 0 ? job_observer() : nullptr;
    if (watch != nullptr) watch->asked_for(watched_);
    check_unchanged(tensor_.sizes(), path_, version_, version_of(tensor_));
    return tensor_;
  }

 private:
  const at::Tensor tensor_;
  const int64_t version_;
  const std::string path_;
  const uint64_t watched_;
};

enum class Saved { activation, weight, weight_cast };
thread_local Saved saving = Saved::activation;

bool is_leaf(const at::TensorBase& tensor) {
  return tensor.is_leaf() && tensor.requires_grad();
}

bool is_weight(const at::Tensor& tensor) {
  return is_parameter(tensor) || (tensor.is_view() && is_parameter(tensor._base()));
}

bool is_a(const torch::autograd::Node& node, const char* name) {
  return std::strstr(typeid(node).name(), name) != nullptr;  // Node::name() would demangle each time
}

// A cast of a leaf, perhaps transposed or reshaped since.
bool is_weight_cast(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kBFloat16 && tensor.scalar_type() != at::kHalf) return false;
  constexpr int kViews = 3;
  auto node = tensor.grad_fn();
  for (int i = 0; i <= kViews && node != nullptr && node->num_outputs() == 1; ++i) {
    const auto next = node->next_edge(0).function;
    if (next != nullptr && is_a(*node, "ToCopyBackward")) return is_a(*next, "AccumulateGrad");
    node = next;
  }
  return false;
}

// `top` is alive throughout.
std::unique_ptr<SavedTensor> pack_by(const SavedTensorStack::Node* top, const at::Tensor& tensor) {
  if (top == nullptr || top->layer == nullptr) return std::make_unique<KeptTensor>(tensor);
  return top->layer->pack(tensor, top->below);
}

class EngineHook final : public torch::autograd::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override {
    // Without its node: an operator's output itself would make a cycle output -> node -> hook -> output. As
    // detach(), which costs a microsecond more. A leaf has no node, a layer that only looks keeps nothing.
    const Saved what = is_weight(tensor)        ? Saved::weight
                       : is_weight_cast(tensor) ? Saved::weight_cast
                                                : Saved::activation;
    const ScopedValue<Saved> scope(saving, what);  // packing may throw: checkpointing stops so
    const SavedTensorStack::Node* const top = current_node();
    const bool only_looks = top != nullptr && top->layer != nullptr && top->layer->only_looks();
    saved_ = pack_by(top, only_looks || is_leaf(tensor) ? tensor : tensor.tensor_data());
  }
  at::Tensor call_unpack_hook() override { return saved_->unpack(); }

 private:
  std::unique_ptr<SavedTensor> saved_;
};

class StackEngine final : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    const auto* node = current_node();
    const bool empty = node == nullptr || node->layer == nullptr;
    if (empty && job_observer() == nullptr) return nullptr;
    return std::make_unique<EngineHook>();
  }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    std::call_once(started_, [this] { start_threads(); });
    return Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

 private:
  // LibTorch starts the threads of devices once in a process, for the engine that runs first; another one's
  // backward pass fails on a device. So each of the two gets its own, the stock one first, by the usual way.
  void start_threads() {
    get_base_engine().initialize_device_threads_pool();
    start_device_threads();
  }

  std::once_flag started_;
};

torch::autograd::Engine& stack_engine() {
  static auto* engine = new StackEngine;  // leaked: worker threads refer to it until the process ends
  return *engine;
}

std::atomic<int> engine_guards{0};

// Once: later on our own kernels are there.
void check_dispatch_keys() {
  static const bool once = [] {
    const std::string conflict = dispatch_key_conflict(KeyUser::policies);
    TORCH_CHECK(conflict.empty(), conflict);
    return true;
  }();
  static_cast<void>(once);
}

// Another's would be taken for a node of the stack.
void check_debug_info() {
  const c10::DebugInfoBase* const info = c10::ThreadLocalDebugInfo::get(kKind);
  if (info == nullptr || dynamic_cast<const SavedTensorStack::Node*>(info) != nullptr) return;
  TORCH_CHECK(false, "LibTorch's debug information ", kSavedTensorStackName,
              " has two users in this thread: dtk, for the stack of saved tensors, and who has put a ",
              c10::demangle(typeid(*info).name()), " there; only one of them can have it");
}

}  // namespace

SavedTensorStack SavedTensorStack::current() {
  const Node* node = current_node();
  if (node == nullptr || node->layer == nullptr) return SavedTensorStack(nullptr);
  return SavedTensorStack(node->shared_from_this());
}

bool is_parameter(const at::TensorBase& tensor) {
  return tensor.is_leaf() && (tensor.requires_grad() || !tensor.name().empty());
}

void mark_frozen(const at::Tensor& parameter) {
  TORCH_CHECK(parameter.is_leaf() && !parameter.requires_grad(),
              "a parameter that is marked as frozen needs no gradient and comes of no operator");
  if (parameter.name().empty()) torch::autograd::impl::set_name(parameter, "frozen");
}

bool saving_weight() {
  return saving == Saved::weight;
}

bool saving_weight_cast() {
  return saving == Saved::weight_cast;
}

std::unique_ptr<SavedTensor> SavedTensorStack::pack(const at::Tensor& tensor) const {
  return pack_by(top_.get(), tensor);
}

const SavedTensorLayer* SavedTensorStack::top() const {
  return top_ != nullptr ? top_->layer.get() : nullptr;
}

bool SavedTensorStack::lets_go() const {
  for (const Node* node = top_.get(); node != nullptr; node = node->below.top_.get()) {
    if (!node->layer->keeps()) return true;
  }
  return false;
}

SavedTensorStack SavedTensorStack::keepers() const {
  if (top_ == nullptr) return *this;
  SavedTensorStack under = top_->below.keepers();
  if (!top_->layer->keeps()) return under;
  return SavedTensorStack(std::make_shared<Node>(top_->layer, std::move(under)));
}

SavedTensorScope::SavedTensorScope(std::shared_ptr<SavedTensorLayer> layer)
    : SavedTensorScope(std::move(layer), SavedTensorStack::current()) {}

SavedTensorScope::SavedTensorScope(std::shared_ptr<SavedTensorLayer> layer, const SavedTensorStack& under)
    : guard_(kKind, std::make_shared<SavedTensorStack::Node>(std::move(layer), under)) {}

SavedTensorScope::SavedTensorScope(const SavedTensorStack& stack)
    : guard_(kKind, stack.empty()
                        ? std::make_shared<SavedTensorStack::Node>(nullptr, stack)
                        : std::make_shared<SavedTensorStack::Node>(stack.top_->layer, stack.top_->below)) {}

SavedTensorScope::~SavedTensorScope() = default;

void check_engine(const char* what, std::string_view path) {
  TORCH_CHECK(engine_guards > 0, what, " ", path,
              ": no SavedTensorEngineGuard is alive, so autograd would keep every tensor; let one live from "
              "before the first forward pass to after the last backward pass");
}

SavedTensorEngineGuard::SavedTensorEngineGuard() {
  check_dispatch_keys();
  check_debug_info();
  register_engine_kernels();
  if (engine_guards++ == 0) torch::autograd::set_default_engine_stub(&stack_engine);
}

SavedTensorEngineGuard::~SavedTensorEngineGuard() {
  if (--engine_guards == 0) {
    torch::autograd::set_default_engine_stub(&torch::autograd::Engine::get_base_engine);
  }
}

}  // namespace dtk::policies
