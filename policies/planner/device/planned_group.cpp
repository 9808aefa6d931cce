#include <dtk/planner/planned_group.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace dtk::planner {
namespace {

using c10d::Work;

class Done final : public Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
};

class PlannedGroup final : public c10d::Backend {
 public:
  using Backend::Backend;

  const std::string getBackendName() const override { return "planned"; }

  c10::intrusive_ptr<Work> broadcast(std::vector<at::Tensor>&, const c10d::BroadcastOptions&) override {
    return c10::make_intrusive<Done>();
  }
  c10::intrusive_ptr<Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<Done>();
  }
  c10::intrusive_ptr<Work> alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&,
                                         std::vector<int64_t>&, const c10d::AllToAllOptions&) override {
    return c10::make_intrusive<Done>();
  }
  c10::intrusive_ptr<Work> send(std::vector<at::Tensor>&, int, int) override {
    return c10::make_intrusive<Done>();
  }
  c10::intrusive_ptr<Work> recv(std::vector<at::Tensor>&, int, int) override {
    return c10::make_intrusive<Done>();
  }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> planned_group(int rank, int ranks) {
  return c10::make_intrusive<PlannedGroup>(rank, ranks);
}

}  // namespace dtk::planner
