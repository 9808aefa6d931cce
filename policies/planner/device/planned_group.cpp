#include <dtk/planner/planned_group.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace dtk::planner {
namespace {

class Done final : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
};

class PlannedGroup final : public c10d::Backend {
 public:
  PlannedGroup(int rank, int ranks, SentBytes* sent) : Backend(rank, ranks), sent_(sent) {}

  const std::string getBackendName() const override { return "planned"; }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    if (options.rootRank == rank_) count("broadcast", bytes_of(tensors) * (size_ - 1));
    return c10::make_intrusive<Done>();
  }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    count("allreduce", 2 * bytes_of(tensors) * (size_ - 1) / size_);
    return c10::make_intrusive<Done>();
  }

  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor&, at::Tensor& sent, std::vector<int64_t>&,
                                               std::vector<int64_t>& parts,
                                               const c10d::AllToAllOptions&) override {
    const int64_t elements = sent.numel() - parts.at(static_cast<size_t>(rank_));
    count("alltoall", elements * static_cast<int64_t>(sent.element_size()));
    return c10::make_intrusive<Done>();
  }

 private:
  static int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
    int64_t bytes = 0;
    for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
    return bytes;
  }
  void count(const char* what, int64_t bytes) {
    if (sent_ != nullptr) sent_->bytes[what] += bytes;
  }
  SentBytes* const sent_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> planned_group(int rank, int ranks, SentBytes* sent) {
  return c10::make_intrusive<PlannedGroup>(rank, ranks, sent);
}

}  // namespace dtk::planner
