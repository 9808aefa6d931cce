// The same DenseNet trained plainly and with recomputation in several forms, side by side.
#pragma once
#include <torch/optim/sgd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "densenet_checkpoint/densenet.h"
#include "support/training_memory.h"

namespace examples {

enum class Form {
  plain,           // all is kept
  checkpointed,    // dtk::policies::checkpoint(), with stock batch norms
  form_2018,       // checkpoint_2018(), with the batch norms made for it
  form_2018_stock  // checkpoint_2018(), with stock batch norms: what goes wrong
};
inline constexpr Form kForms[] = {Form::plain, Form::checkpointed, Form::form_2018, Form::form_2018_stock};
const char* name_of(Form form);

/// `saved` is told what the forms of 2018 keep.
std::unique_ptr<DenseNet> make_densenet(Form form, const DenseNetOptions& options,
                                        std::shared_ptr<SavedBytes> saved);

/// What one image more keeps for backward: statistics, counters and the batch's own numbers cancel out. A
/// CountingAllocatorGuard must be alive.
int64_t saved_bytes_per_image(Form form, const DenseNetOptions& options);

struct Settings {
  int64_t depth = 100;
  int64_t batch = 64;
  int64_t rounds = 5;  // of timed steps, one of each form in turns
};

struct FormOutcome {
  Form form = Form::plain;
  int64_t saved_per_image = 0;  // bytes
  int64_t peak = 0;             // bytes of a step above what is alive between steps, without scratch
  std::vector<double> ms = {};  // of each timed step
  double median_ms = 0;
  double ms_ratio = 1;                     // to plain's step of the same round, median
  double gradient_error = 0;               // largest difference to plain's after the last step; 0: bit-equal
  bool equal_statistics = false;           // running means and variances, bit by bit
  int64_t steps = 0, batches_tracked = 0;  // made, and as the first batch norm of a segment counted them
};

struct Comparison {
  int64_t parameters = 0, tensors = 0;
  std::vector<FormOutcome> forms;  // as kForms
};

/// Of every form's optimizer.
torch::optim::SGDOptions sgd_options();

/// Trains each form on the same batches from the same weights: cross-entropy on random images, SGD with
/// Nesterov momentum. Throws std::invalid_argument for a depth that is none.
Comparison compare(const Settings& settings);

}  // namespace examples
