#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorOptions.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <dtk/policies/module_path.h>
#include <dtk/policies/offload.h>
#include <dtk/policies/saved_tensors.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

namespace dtk::policies {
namespace {

bool before(c10::Device a, c10::Device b) {
  return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
}

// A tensor in `storage`, without history.
at::Tensor tensor_in(const c10::Storage& storage, caffe2::TypeMeta dtype, at::IntArrayRef sizes,
                     at::IntArrayRef strides, int64_t offset) {
  const auto key = c10::computeDispatchKey(c10::typeMetaToScalarType(dtype), at::kStrided, storage.device());
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

at::Tensor bytes_of(const c10::Storage& storage) {
  const std::array<int64_t, 1> size{static_cast<int64_t>(storage.nbytes())}, stride{1};
  return tensor_in(storage, caffe2::TypeMeta::Make<uint8_t>(), size, stride, 0);
}

at::Tensor host_memory(int64_t bytes, c10::Device device, const std::string& path) {
  std::optional<HostTierScope> tier;
  if (device.is_cpu()) tier.emplace();  // else all CPU memory is the host's
  const OwnerScope owner(Category::offloaded, path);
  return at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(!device.is_cpu()));
}

}  // namespace

// One storage as it was at one version.
struct OffloadStore::Moved {
  Moved(OffloadStore& owner, const at::Tensor& tensor, const SavedTensorStack& under, std::string where)
      : store(owner),
        source(tensor.storage().getWeakStorageImpl()),
        device(tensor.device()),
        bytes(static_cast<int64_t>(tensor.storage().nbytes())),
        counter(tensor.unsafeGetTensorImpl()->version_counter()),
        version(version_of(tensor)),
        below(under),
        path(std::move(where)) {}
  ~Moved();
  bool unchanged() const { return !counter.enabled() || counter.current_version() == version; }

  OffloadStore& store;
  const c10::weak_intrusive_ptr<c10::StorageImpl> source;
  const c10::Device device;
  const int64_t bytes;
  const c10::VariableVersion counter;
  const int64_t version;
  const SavedTensorStack below;  // in whose books its memory on the device is
  const std::string path;
  uint64_t latest_segment = 0;  // that saved it
  at::Tensor host;
  c10::Storage here;                  // on the device; empty if it is not there
  std::unique_ptr<SavedTensor> kept;  // `here`, kept by `below`
  std::unique_ptr<AsyncCopy> copy;    // of `here`, in either direction, not waited for yet
  bool arriving = false;              // it writes to `here`
};

// What autograd holds: one tensor that lies in such a storage.
class OffloadStore::Offloaded final : public SavedTensor {
 public:
  Offloaded(std::shared_ptr<OffloadStore> store, std::shared_ptr<Moved> moved, uint64_t segment,
            const at::Tensor& tensor)
      : store_(std::move(store)),
        moved_(std::move(moved)),
        segment_(segment),
        dtype_(tensor.dtype()),
        sizes_(tensor.sizes()),
        strides_(tensor.strides()),
        offset_(tensor.storage_offset()),
        counter_(tensor.unsafeGetTensorImpl()->version_counter()),
        version_(version_of(tensor)) {
    ++store_->segments_[segment_].held;
  }

  ~Offloaded() override {
    const std::lock_guard lock(store_->mutex_);
    moved_.reset();
    const auto segment = store_->segments_.find(segment_);
    if (--segment->second.held == 0) store_->segments_.erase(segment);
  }

  at::Tensor unpack() override {
    const int64_t now = counter_.enabled() ? counter_.current_version() : version_;
    check_unchanged(sizes_, moved_->path, version_, now);
    const std::lock_guard lock(store_->mutex_);
    store_->need(segment_);
    return tensor_in(store_->on_device(*moved_), dtype_, sizes_, strides_, offset_);
  }

 private:
  const std::shared_ptr<OffloadStore> store_;
  std::shared_ptr<Moved> moved_;
  const uint64_t segment_;
  const caffe2::TypeMeta dtype_;
  const at::DimVector sizes_, strides_;
  const int64_t offset_;
  const c10::VariableVersion counter_;
  const int64_t version_;
};

class OffloadStore::Layer final : public SavedTensorLayer {
 public:
  Layer(std::shared_ptr<OffloadStore> store, uint64_t segment, std::string_view path, bool cpu_trains)
      : store_(std::move(store)), segment_(segment), path_(path), cpu_trains_(cpu_trains) {}
  // What is recomputed in backward is needed at once.
  bool keeps() const override { return false; }

  std::unique_ptr<SavedTensor> pack(const at::Tensor& tensor, const SavedTensorStack& below) override {
    if (saving_weight() || !store_->takes(tensor, cpu_trains_)) return below.pack(tensor);
    const std::lock_guard lock(store_->mutex_);
    return std::make_unique<Offloaded>(store_, store_->move_out(tensor, below, segment_, path_), segment_,
                                       tensor);
  }

 private:
  const std::shared_ptr<OffloadStore> store_;
  const uint64_t segment_;
  const std::string path_;
  const bool cpu_trains_;
};

Tensors offload(std::string_view path, const ModuleFn& fn, Tensors&& inputs,
                const std::shared_ptr<OffloadStore>& store, bool goes_on) {
  const SavedTensorStack outer = SavedTensorStack::current();
  if (!at::GradMode::is_enabled() || recomputing() || outer.lets_go()) return fn(std::move(inputs));
  check_engine("offload", path);
  const bool cpu_trains = std::all_of(inputs.begin(), inputs.end(),
                                      [](const at::Tensor& one) { return !one.defined() || one.is_cpu(); });
  const uint64_t segment = store->begin(goes_on);
  Tensors outputs;
  {
    const SavedTensorScope scope(std::make_shared<OffloadStore::Layer>(store, segment, path, cpu_trains));
    outputs = fn(std::move(inputs));
  }
  // Kept by autocast until the forward pass ends, those of all segments would stay on the device till then.
  at::autocast::clear_cache();
  store->end(segment);
  return outputs;
}

OffloadStore::OffloadStore(int64_t min_bytes, MakeCopies make_copies)
    : min_bytes_(min_bytes), make_copies_(std::move(make_copies)), copies_(&before) {}

OffloadStore::~OffloadStore() = default;

OffloadCounts OffloadStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

uint64_t OffloadStore::begin(bool goes_on) {
  const std::lock_guard lock(mutex_);
  at_hand_ = 0;
  if (!goes_on || latest_ == 0) ++latest_;
  return latest_;
}

// What earlier segments saved has had this one's time to be copied.
void OffloadStore::end(uint64_t segment) {
  const std::lock_guard lock(mutex_);
  const std::set<Moved*> here = here_;
  for (Moved* const moved : here) {
    if (moved->latest_segment < segment) let_go(*moved);
  }
}

bool OffloadStore::takes(const at::Tensor& tensor, bool cpu_trains) const {
  return (cpu_trains || !tensor.is_cpu()) && tensor.has_storage() && tensor.layout() == at::kStrided &&
         !tensor.is_meta() && !tensor.is_quantized() && !tensor.is_conj() && !tensor.is_neg() &&
         tensor.numel() > 0 &&
         static_cast<int64_t>(tensor.storage().nbytes()) >= std::max<int64_t>(1, min_bytes_);
}

std::shared_ptr<OffloadStore::Moved> OffloadStore::move_out(const at::Tensor& tensor,
                                                            const SavedTensorStack& below, uint64_t segment,
                                                            std::string_view path) {
  const void* const storage = tensor.storage().unsafeGetStorageImpl();
  std::shared_ptr<Moved> moved;
  if (const auto found = by_storage_.find(storage); found != by_storage_.end()) moved = found->second.lock();
  // An older copy of a storage that was changed since serves those that were saved before.
  if (moved == nullptr || !moved->unchanged() || moved->version != version_of(tensor)) {
    const std::string& where = module_path();
    moved = std::make_shared<Moved>(*this, tensor, below, where.empty() ? std::string(path) : where);
    moved->host = host_memory(moved->bytes, moved->device, moved->path);
    counts_.host_bytes += moved->bytes;
    counts_.max_host_bytes = std::max(counts_.max_host_bytes, counts_.host_bytes);
    moved->kept = below.pack(tensor);
    moved->here = tensor.storage();
    here_.insert(moved.get());
    moved->copy = copies(moved->device).begin(bytes_of(moved->here), moved->host);
    ++counts_.copied_out;
    counts_.copied_out_bytes += moved->bytes;
    if (moved->device.is_cpu()) counts_.from_host = true;
    by_storage_[storage] = moved;
  }
  std::vector<std::weak_ptr<Moved>>& saved = segments_[segment].moved;
  if (moved->latest_segment != segment) saved.push_back(moved);
  moved->latest_segment = segment;
  return moved;
}

// Backward works on `segment`: all of it comes to the device, in the order of use, and behind it what the
// segment before saved; the rest goes.
void OffloadStore::need(uint64_t segment) {
  if (segment == at_hand_) return;
  std::vector<std::shared_ptr<Moved>> wanted;
  const auto now = segments_.find(segment);
  const auto add = [&](const Segment& one) {
    for (auto it = one.moved.rbegin(); it != one.moved.rend(); ++it) {
      if (std::shared_ptr<Moved> moved = it->lock()) wanted.push_back(std::move(moved));
    }
  };
  add(now->second);
  if (now != segments_.begin()) add(std::prev(now)->second);
  const std::set<Moved*> here = here_;
  for (Moved* const moved : here) {
    const bool stays =
        std::any_of(wanted.begin(), wanted.end(), [&](const auto& one) { return one.get() == moved; });
    if (!stays) let_go(*moved);
  }
  for (const std::shared_ptr<Moved>& moved : wanted) fetch(*moved);
  at_hand_ = segment;
}

c10::Storage OffloadStore::on_device(Moved& moved) {
  fetch(moved);
  if (moved.arriving) {
    moved.copy->wait();
    moved.copy.reset();
    moved.arriving = false;
  }
  return moved.here;
}

void OffloadStore::fetch(Moved& moved) {
  if (moved.here) return;
  const at::NoGradGuard no_grad;
  const ModulePathScope within(moved.path);
  c10::Storage alive(moved.source.lock());
  if (alive && static_cast<int64_t>(alive.nbytes()) == moved.bytes) {
    moved.kept = moved.below.pack(bytes_of(alive));
    moved.here = std::move(alive);
    here_.insert(&moved);
    return;
  }
  const at::Tensor bytes = at::empty({moved.bytes}, at::TensorOptions(at::kByte).device(moved.device));
  moved.copy = copies(moved.device).begin(moved.host, bytes);
  moved.arriving = true;
  moved.here = bytes.storage();
  here_.insert(&moved);
  moved.kept = moved.below.pack(bytes);
  ++counts_.fetched;
}

// Work given from now on may have its memory, so the copy must come before.
void OffloadStore::let_go(Moved& moved) {
  if (moved.copy != nullptr) moved.copy->wait();
  moved.copy.reset();
  moved.arriving = false;
  moved.kept.reset();
  moved.here = {};
  here_.erase(&moved);
}

AsyncCopies& OffloadStore::copies(c10::Device device) {
  std::unique_ptr<AsyncCopies>& found = copies_[device];
  if (found == nullptr) found = make_copies_(device);
  return *found;
}

OffloadStore::Moved::~Moved() {
  const std::lock_guard lock(store.mutex_);
  try {
    store.let_go(*this);
  } catch (const c10::Error&) {
    // A device that failed copies no more; the training thread meets the error itself.
    store.here_.erase(this);
  }
  if (host.defined()) store.counts_.host_bytes -= bytes;
  const auto found = store.by_storage_.find(source._unsafe_get_target());
  if (found != store.by_storage_.end() && found->second.expired()) store.by_storage_.erase(found);
}

}  // namespace dtk::policies
