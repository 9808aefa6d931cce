#include "toolkit/families/diffusion_planner/frame_source.h"

#include <stdexcept>
#include <string_view>

namespace dtk {

PlannerFrameSource::PlannerFrameSource(const std::filesystem::path& folder_or_list,
                                       PlannerFrameOptions options)
    : frames_(folder_or_list, std::move(options)) {}

Batch PlannerFrameSource::allocate(int64_t count, bool pinned) const {
  return batch_of(frames_.allocate(count, pinned));
}

void PlannerFrameSource::read(int64_t index, uint64_t, const Batch& batch, int64_t row) const {
  frames_.read(index, planner_batch(batch), row);
}

Batch batch_of(PlannerBatch frames) {
  Batch batch;
  PlannerBatch::fields(
      frames, [&](std::string_view, at::Tensor& tensor) { batch.tensors.push_back(std::move(tensor)); });
  return batch;
}

PlannerBatch planner_batch(Batch batch) {
  PlannerBatch frames;
  size_t taken = 0;
  PlannerBatch::fields(frames, [&](std::string_view, at::Tensor& tensor) {
    if (taken < batch.tensors.size()) tensor = std::move(batch.tensors[taken]);
    ++taken;
  });
  if (taken == batch.tensors.size()) return frames;
  throw std::invalid_argument("planner_batch: " + std::to_string(batch.tensors.size()) +
                              " tensors; a batch of frames has " + std::to_string(taken));
}

}  // namespace dtk
