#include <ATen/SDPBackend.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <dtk/policies/advice.h>
#include <dtk/policies/attention.h>
#include <dtk/policies/guards.h>
#include <dtk/policies/internal/recomputing.h>
#include <dtk/policies/internal/scoped.h>
#include <dtk/policies/module_path.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <utility>

namespace dtk::policies {

at::Tensor materialised_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionCall& call) {
  at::Tensor scaled = q.mul(call.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1)))));
  at::Tensor weights = at::matmul(scaled, k.transpose(-2, -1));  // (N, H, T, S)
  scaled.reset();
  constexpr double never = -std::numeric_limits<double>::infinity();
  TORCH_CHECK_VALUE(!(call.causal && call.mask), "attention: causal beside a mask; put both into the mask");
  if (call.causal) {
    const auto bytes = q.options().dtype(at::kBool);
    weights = weights.masked_fill(at::ones({q.size(-2), k.size(-2)}, bytes).triu_(1), never);
  } else if (call.mask && call.mask->scalar_type() == at::kBool) {
    weights = weights.masked_fill(call.mask->logical_not(), never);
  } else if (call.mask) {
    weights = weights.add(*call.mask);
  }
  weights = at::softmax(weights, -1);
  if (call.dropout > 0) weights = at::dropout(weights, call.dropout, /*train=*/true);
  return at::matmul(weights, v);
}

// What ran materialised, by module.
struct AttentionPolicy::Findings {
  struct Entry {
    int64_t calls = 0;
    int64_t bytes = 0;  // of weights, the largest call
    std::string what;
  };
  bool watched = false;   // a training pass is over
  bool watching = false;  // it is under way
  bool stepped = false;
  bool called = false;                          // the seam's attention, at all
  int64_t calls = 0, fused = 0;                 // of it, with gradients, recomputations not counted
  int64_t preferred = 0;                        // by the kernel that options name
  std::string other;                            // the first call that another kernel took
  bool within_seam = false;                     // the seam's own calls are judged before they are made
  int64_t last_product = 0;                     // elements of the latest batched matrix product
  std::map<std::string, Entry> stored, direct;  // through the seam, past it

  static void add(std::map<std::string, Entry>& entries, int64_t bytes, const std::string& what) {
    Entry& entry = entries[module_path()];
    ++entry.calls;
    if (bytes > entry.bytes) entry = {entry.calls, bytes, what};
  }
};

namespace {

std::string place(const std::string& path) {
  return path.empty() ? "the model" : path;
}

at::SDPBackend backend_for(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionCall& call) {
  return static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(q, k, v, call.mask, call.dropout, call.causal, call.scale));
}

at::SDPBackend backend_of(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::flash:
      return at::SDPBackend::flash_attention;
    case AttentionKernel::efficient:
      return at::SDPBackend::efficient_attention;
    case AttentionKernel::cudnn:
      return at::SDPBackend::cudnn_attention;
  }
  return at::SDPBackend::error;
}

// What LibTorch's materialised form keeps for backward of (N, H, T, S): the weights, in no less than fp32;
// with dropout the dropped ones too, and its noise, which takes a byte an element where dropout has a kernel.
int64_t weight_bytes(const at::Tensor& q, const at::Tensor& k, double dropout) {
  const int64_t count = q.numel() / q.size(-1) * k.size(-2);
  const int64_t size = std::max<int64_t>(static_cast<int64_t>(q.element_size()), sizeof(float));
  return dropout > 0 ? count * (2 * size + (q.is_cpu() ? size : 1)) : count * size;
}

std::string shape_of(const at::Tensor& q, const AttentionCall& call) {
  return c10::str("q ", q.sizes(), " ", q.scalar_type(), " on ", q.device(), call.mask ? ", mask" : "",
                  call.causal ? ", causal" : "",
                  call.dropout > 0 ? c10::str(", dropout ", call.dropout) : std::string());
}

constexpr const char* kEnabled = "policies.attention.enabled";
constexpr const char* kDefault = "\"default\"";
constexpr const char* kKernel = "policies.attention.kernel";
constexpr const char* kFlash = "\"flash\"";  // its default

// Those that LibTorch may choose among, in its own order of preference.
AttentionBackends backends_of(AttentionKernel kernel) {
  AttentionBackends backends = AttentionBackends::now();
  backends.flash = backends.flash && kernel == AttentionKernel::flash;
  backends.cudnn = backends.cudnn && kernel == AttentionKernel::cudnn;
  return backends;
}

[[noreturn]] void refuse_fallback(const std::string& path, const std::string& what, double dropout) {
  const char* const change =
      dropout > 0
          ? "set the dropout of attention to 0"
          : "give q, k and v one dtype, a last dimension without gaps and a mask that needs no gradient, "
            "and leave LibTorch's fused backends enabled";
  throw PolicyError(kEnabled, " = true, but LibTorch has no fused kernel for the attention of " +
                                  place(path) + " (" + what + ") and would store its weights; " + change +
                                  ", or " + advise(kEnabled, kDefault) + ", which runs and lists it");
}

// As autocast will give it to the operator, whose kernel is chosen by what it gets.
at::Tensor as_computed(at::Tensor tensor) {
  const c10::DeviceType device = tensor.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return tensor;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

[[noreturn]] void refuse_direct(const std::string& path, const std::string& what) {
  throw PolicyError(kEnabled,
                    " = true, but " + place(path) + " stores attention weights of its own: " + what +
                        "; call the seam's attention there (at::scaled_dot_product_attention, never "
                        "torch::nn::MultiheadAttention), or " +
                        advise(kEnabled, kDefault));
}

int64_t elements(at::IntArrayRef batch_and_rows, int64_t columns) {
  return c10::multiply_integers(batch_and_rows) * columns;
}

}  // namespace

// Sees every operator of a forward pass on this thread.
class AttentionPolicy::Watch final : public PolicyScope {
 public:
  explicit Watch(std::shared_ptr<Findings> findings) : findings_(std::move(findings)) {
    findings_->watching = true;
    if (outer_ != nullptr) return;  // whose callback serves the innermost
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&on_operator).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~Watch() override {
    if (handle_) at::removeCallback(*handle_);
    current_ = outer_;
    findings_->watching = false;
    // An evaluation has not shown the attention of training, nor has a pass that threw shown all of its own.
    findings_->watched = training_ && std::uncaught_exceptions() <= exceptions_;
  }

 private:
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& fn) {
    Findings* findings = current_;
    if (findings == nullptr || findings->within_seam) return nullptr;
    const bool adds = std::strcmp(fn.name(), "aten::baddbmm") == 0;
    if (std::strcmp(fn.name(), "aten::_scaled_dot_product_attention_math") == 0) {
      const at::Tensor q = fn.inputs()[0].toTensor(), k = fn.inputs()[1].toTensor();
      Findings::add(findings->direct, weight_bytes(q, k, fn.inputs()[4].toDouble()),
                    c10::str("scaled_dot_product_attention of q ", q.sizes(), " without a fused kernel"));
      findings->last_product = 0;
    } else if (adds || std::strcmp(fn.name(), "aten::bmm") == 0) {
      const size_t first = adds ? 1 : 0;
      const at::Tensor a = fn.inputs()[first].toTensor(), b = fn.inputs()[first + 1].toTensor();
      findings->last_product = elements(a.sizes().slice(0, 2), b.size(2));
    } else if (std::strcmp(fn.name(), "aten::_native_multi_head_attention") == 0) {
      const at::Tensor q = fn.inputs()[0].toTensor(), k = fn.inputs()[1].toTensor();  // (N, T, D)
      const int64_t count = elements(q.sizes().slice(0, 2), k.size(1)) * fn.inputs()[4].toInt();
      Findings::add(findings->direct, count * static_cast<int64_t>(q.element_size()),
                    c10::str("_native_multi_head_attention of q ", q.sizes()));
      findings->last_product = 0;
    } else if (std::strcmp(fn.name(), "aten::_softmax") == 0) {
      // Softmax over what a batched product just made: attention by hand, as in MultiheadAttention.
      const at::Tensor x = fn.inputs()[0].toTensor();
      if (x.dim() < 3 || x.numel() != findings->last_product) return nullptr;
      Findings::add(findings->direct, static_cast<int64_t>(x.nbytes()),
                    c10::str("softmax of ", x.sizes(), " after a batched product"));
    }
    return nullptr;
  }

  static thread_local Findings* current_;
  const std::shared_ptr<Findings> findings_;
  Findings* const outer_ = std::exchange(current_, findings_.get());
  std::optional<at::CallbackHandle> handle_;
  const int exceptions_ = std::uncaught_exceptions();
  const bool training_ = at::GradMode::is_enabled();
};

thread_local AttentionPolicy::Findings* AttentionPolicy::Watch::current_ = nullptr;

AttentionPolicy::AttentionPolicy(const AttentionOptions& options)
    : options_(options), findings_(std::make_shared<Findings>()) {}

std::unique_ptr<PolicyScope> AttentionPolicy::forward_scope() {
  if (options_.enabled == Enabled::off || findings_->watched || findings_->watching) return nullptr;
  return std::make_unique<Watch>(findings_);
}

void AttentionPolicy::put_in(Seam& seam) {
  if (options_.enabled == Enabled::off) {
    seam.attention = [](at::Tensor q, at::Tensor k, at::Tensor v, const AttentionCall& call) {
      return materialised_attention(q, k, v, call);
    };
    return;
  }
  const bool asked = options_.enabled == Enabled::on;
  seam.attention = [asked, kernel = options_.kernel, findings = findings_](
                       at::Tensor q, at::Tensor k, at::Tensor v, const AttentionCall& given) {
    q = as_computed(std::move(q));
    k = as_computed(std::move(k));
    v = as_computed(std::move(v));
    AttentionCall call = given;
    if (call.mask) call.mask = as_computed(std::move(*call.mask));
    std::optional<AttentionBackendGuard> chosen;
    if (q.is_cuda()) chosen.emplace(backends_of(kernel));
    const at::SDPBackend backend = backend_for(q, k, v, call);
    const bool fused = backend != at::SDPBackend::math && backend != at::SDPBackend::error;
    if (!fused && asked) refuse_fallback(module_path(), shape_of(q, call), call.dropout);
    findings->called = true;
    if (at::GradMode::is_enabled() && !recomputing()) {
      ++findings->calls;
      findings->fused += fused ? 1 : 0;
      if (backend == backend_of(kernel)) {
        ++findings->preferred;
      } else if (findings->other.empty()) {
        findings->other = shape_of(q, call);
      }
      if (!fused) {
        Findings::add(findings->stored, weight_bytes(q, k, call.dropout), shape_of(q, call));
      }
    }
    const ScopedValue<bool> within(findings->within_seam, true);
    return at::scaled_dot_product_attention(q, k, v, call.mask, call.dropout, call.causal, call.scale);
  };
  if (!asked) return;
  seam.run = [inner = std::move(seam.run), findings = findings_](std::string_view path, const ModuleFn& fn,
                                                                 Tensors&& inputs) {
    Tensors outputs = inner(path, fn, std::move(inputs));
    if (!findings->direct.empty()) refuse_direct(std::string(path), findings->direct.begin()->second.what);
    return outputs;
  };
}

void AttentionPolicy::before_step() {
  findings_->stepped = true;
  if (options_.enabled != Enabled::on) return;
  if (options_.kernel != AttentionOptions().kernel && findings_->calls > 0 && findings_->preferred == 0) {
    throw PolicyError(kKernel, " = \"" + text_of(options_.kernel) +
                                   "\" has no effect: LibTorch took it for no call (" + findings_->other +
                                   "); " + advise(kKernel, kFlash));
  }
  if (!findings_->direct.empty()) {
    const auto& [path, entry] = *findings_->direct.begin();
    refuse_direct(path, entry.what);
  }
  if (!findings_->called) {
    throw PolicyError(kEnabled,
                      " = true, but the forward pass did not call the seam's attention, so it "
                      "has no effect; call it where the model attends, or " +
                          advise(kEnabled, kDefault));
  }
}

PolicyReport AttentionPolicy::report() const {
  if (options_.enabled == Enabled::off) {
    return {name(), false, "weights are stored: policies.attention.enabled = false"};
  }
  const Findings& found = *findings_;
  const bool ran = found.watched || found.stepped || found.called || !found.direct.empty();
  if (!ran) {
    return {name(), true, "fused kernels; calls that have none are listed once they ran"};
  }
  PolicyReport report{name(), true, "fused kernels, no weights are stored"};
  if (found.fused < found.calls) {
    report.active = found.fused > 0;
    report.reason = c10::str("fused kernels in ", found.fused, " of ", found.calls, " calls");
  } else if ((found.watched || found.stepped) && !found.called) {
    report.active = false;
    report.reason = "no forward pass has called the seam's attention";
  }
  const auto list = [&](const std::map<std::string, Findings::Entry>& entries, const char* begin,
                        const char* how) {
    for (const auto& [path, entry] : entries) {
      report.reason += c10::str("; not in ", place(path), ": ", begin, entry.bytes, " bytes of weights ", how,
                                " (", entry.what, ")");
    }
  };
  if (options_.kernel != AttentionOptions().kernel && found.preferred < found.calls) {
    report.reason += c10::str("; kernel ", text_of(options_.kernel), " in ", found.preferred, " of ",
                              found.calls, " calls, not for ", found.other);
  }
  list(found.stored, "", "are stored, no fused kernel");
  list(found.direct, "at least ", "are stored past the seam");
  if (found.stepped && !found.watched)
    report.reason += "; not looked for past the seam: no training pass ran within forward_scope()";
  return report;
}

}  // namespace dtk::policies
