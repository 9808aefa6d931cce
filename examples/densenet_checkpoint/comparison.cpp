#include "densenet_checkpoint/comparison.h"

#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/memory_ledger.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "densenet_checkpoint/checkpoint_2018.h"

namespace examples {
namespace {

using namespace dtk::policies;

struct Batch {
  at::Tensor images, labels;
};

Batch make_batch(int64_t count, int64_t classes) {
  const OwnerScope owner(Category::data, "batch");
  at::Tensor images = at::randn({count, 3, 32, 32});
  return {std::move(images), at::randint(classes, {count}, at::kLong)};
}

RunSegment run_of(Form form, std::shared_ptr<SavedBytes> saved) {
  if (form == Form::plain) return &run_segment_plainly;
  if (form == Form::checkpointed) {
    return [](const std::string& path, const ModuleFn& fn, Tensors&& inputs, const Tensors&) {
      return checkpoint(path, fn, std::move(inputs));
    };
  }
  return [saved = std::move(saved)](const std::string&, const ModuleFn& fn, Tensors&& inputs,
                                    const Tensors& parameters) {
    return checkpoint_2018(fn, inputs, parameters, *saved);
  };
}

// The stock norm but for the form of 2018, which needs one of its own.
StatisticsRule rule_of(Form form) {
  return form == Form::form_2018 ? StatisticsRule::with_gradient : StatisticsRule::every_pass;
}

class Training {
 public:
  Training(Form form, const DenseNetOptions& options, const std::shared_ptr<SavedBytes>& saved)
      : net_(make(form, options, saved)), optimizer_(net_->parameters(), sgd_options()) {}

  void step(const Batch& batch) {
    optimizer_.zero_grad(/*set_to_none=*/false);
    {
      const at::Tensor logits = net_->forward(batch.images);
      const at::Tensor loss = at::cross_entropy_loss(logits, batch.labels);
      torch::autograd::backward({loss}, {});
    }
    optimizer_.step();
  }

  const DenseNet& net() const { return *net_; }

 private:
  static std::unique_ptr<DenseNet> make(Form form, const DenseNetOptions& options,
                                        const std::shared_ptr<SavedBytes>& saved) {
    at::manual_seed(1);
    return make_densenet(form, options, saved);
  }

  const std::unique_ptr<DenseNet> net_;
  torch::optim::SGD optimizer_;
};

double milliseconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double largest_gradient_difference(const DenseNet& net, const DenseNet& plain) {
  double largest = 0;
  const auto own = net.parameters(), others = plain.parameters();
  for (size_t i = 0; i < own.size(); ++i) {
    const at::Tensor a = own[i].grad(), b = others[i].grad();
    if (!at::equal(a, b)) largest = std::max(largest, (a - b).abs().max().item<double>());
  }
  return largest;
}

bool has_equal_statistics(const DenseNet& net, const DenseNet& plain) {
  const auto own = net.named_buffers(), others = plain.named_buffers();
  return std::all_of(own.begin(), own.end(), [&](const auto& buffer) {
    return buffer.value().is_floating_point() ? at::equal(buffer.value(), others[buffer.key()]) : true;
  });
}

int64_t batches_tracked(const DenseNet& net) {
  const std::string name = "features.denseblock1.denselayer1.norm1.num_batches_tracked";
  return net.named_buffers()[name].item<int64_t>();
}

// One step of each, the first form another one each time.
template <class Act>
void in_turns(size_t count, int64_t round, Act act) {
  for (size_t i = 0; i < count; ++i) act((i + static_cast<size_t>(round)) % count);
}

}  // namespace

torch::optim::SGDOptions sgd_options() {
  return torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-4);
}

const char* name_of(Form form) {
  switch (form) {
    case Form::plain:
      return "plain";
    case Form::checkpointed:
      return "checkpointed";
    case Form::form_2018:
      return "2018";
    default:
      return "2018, stock norms";
  }
}

std::unique_ptr<DenseNet> make_densenet(Form form, const DenseNetOptions& options,
                                        std::shared_ptr<SavedBytes> saved) {
  const OwnerScope owner(Category::parameters, name_of(form));
  return std::make_unique<DenseNet>(options, rule_of(form), run_of(form, std::move(saved)));
}

int64_t saved_bytes_per_image(Form form, const DenseNetOptions& options) {
  const SavedBytesScope kept;
  const auto net = make_densenet(form, options, kept.saved());
  const auto saved = [&](int64_t images) {
    const Batch batch = make_batch(images, options.classes);
    const at::Tensor loss = at::cross_entropy_loss(net->forward(batch.images), batch.labels);
    return kept.saved()->bytes();
  };
  const int64_t one = saved(1);
  return saved(2) - one;
}

Comparison compare(const Settings& settings) {
  const DenseNetOptions options = DenseNetOptions::of_depth(settings.depth);
  const CountingAllocatorGuard counting;
  Comparison result;
  for (const Form form : kForms) {
    result.forms.push_back({.form = form, .saved_per_image = saved_bytes_per_image(form, options)});
  }
  const SavedBytesScope kept;
  std::vector<std::unique_ptr<Training>> trainings;
  for (const Form form : kForms) trainings.push_back(std::make_unique<Training>(form, options, kept.saved()));
  const auto batch = [&] { return make_batch(settings.batch, options.classes); };
  {
    const Batch first = batch(), second = batch();  // the first step makes gradients and momentum
    for (size_t i = 0; i < trainings.size(); ++i) {
      trainings[i]->step(first);
      result.forms[i].peak = highest(peaks_of([&] { trainings[i]->step(second); })).peak.bytes;
    }
  }
  for (int64_t round = 0; round < settings.rounds; ++round) {
    const Batch next = batch();
    in_turns(trainings.size(), round, [&](size_t i) {
      result.forms[i].ms.push_back(milliseconds([&] { trainings[i]->step(next); }));
    });
  }
  const DenseNet& plain = trainings.front()->net();
  for (const at::Tensor& parameter : plain.parameters()) result.parameters += parameter.numel();
  result.tensors = static_cast<int64_t>(plain.parameters().size());
  for (size_t i = 0; i < trainings.size(); ++i) {
    FormOutcome& form = result.forms[i];
    std::vector<double> ratios;
    for (size_t r = 0; r < form.ms.size(); ++r) ratios.push_back(form.ms[r] / result.forms[0].ms[r]);
    form.median_ms = median(form.ms);
    form.ms_ratio = median(ratios);
    form.gradient_error = largest_gradient_difference(trainings[i]->net(), plain);
    form.equal_statistics = has_equal_statistics(trainings[i]->net(), plain);
    form.steps = 2 + settings.rounds;
    form.batches_tracked = batches_tracked(trainings[i]->net());
  }
  return result;
}

}  // namespace examples
