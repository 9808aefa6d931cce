// What a segment refuses, by the whole message: it says where, what was seen and what to change. [device]: on
// any, where backward runs on a thread of the engine.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <dtk/policies/checkpoint.h>
#include <dtk/policies/offload.h>
#include <dtk/policies/saved_tensors.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <memory>
#include <string>

#include "support/catch.h"
#include "support/policies/segment_tests.h"

using namespace dtk::policies;
using dtk::test::Fixture;
using dtk::test::test_device;

namespace {

// Without the backtrace.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "(nothing was thrown)";
}

at::Tensor ones(at::IntArrayRef shape) {
  return at::ones(shape, test_device()).requires_grad_(true);
}

/// "Float on cpu" and the like are said of tensors of ones().
std::string on(const char* dtype) {
  return c10::str(dtype, " on ", test_device());
}

// Of backward through `fn` as a segment.
std::string backward_error(const ModuleFn& fn, Tensors&& inputs) {
  const Tensors out = checkpoint("blocks.3", fn, std::move(inputs));
  return error_of([&] { torch::autograd::backward({out[0].sum()}, {}); });
}

}  // namespace

TEST_CASE("a recomputation of another form is refused with both forms and the likely cause", "[device]") {
  Fixture fixture;
  const std::string same = "; a segment must recompute the same: ";
  int run = 0;
  SECTION("a tensor of another size") {
    const ModuleFn grows = [&](Tensors&& in) {
      const at::Tensor h = in[0].narrow(0, 0, ++run).exp();
      return Tensors{h * h};
    };
    CHECK(backward_error(grows, {ones({4})}) ==
          "checkpoint blocks.3: the recomputation saved tensor number 0 as [2] " + on("Float") +
              ", forward saved "
              "[1] " +
              on("Float") + same +
              "dimension 0 grew, as that of a cache which each call appends to: switch such a cache off in "
              "training, or leave this module out of the segments; else look for a counter or a flag that "
              "changed between forward and backward");
    run = 2;
    const ModuleFn shrinks = [&](Tensors&& in) { return Tensors{in[0].narrow(0, 0, run--).exp()}; };
    CHECK(backward_error(shrinks, {ones({4})}) ==
          "checkpoint blocks.3: the recomputation saved tensor number 0 as [1] " + on("Float") +
              ", forward saved "
              "[2] " +
              on("Float") + same +
              "look for state (a counter, a cache, a flag, a global) that changed between forward and "
              "backward, and for branches on it");
  }
  SECTION("of another dtype") {
    const ModuleFn casts = [&](Tensors&& in) {
      return Tensors{in[0].exp().to(run++ == 0 ? at::kFloat : at::kDouble).sin()};
    };
    CHECK(backward_error(casts, {ones({4})}) ==
          "checkpoint blocks.3: the recomputation saved tensor number 1 as [4] " + on("Double") +
              ", forward saved "
              "[4] " +
              on("Float") + same +
              "look for a cast by a flag or by a default dtype that changed between forward and backward");
  }
  const std::string branch =
      "look for a branch on a flag, such as training mode, and for work done in the first call only";
  const std::string other = "checkpoint blocks.3: the recomputation saved tensor number ";
  SECTION("fewer tensors") {
    const ModuleFn fewer = [&](Tensors&& in) {
      return Tensors{run++ == 0 ? in[0].exp().exp() : in[0].exp()};
    };
    CHECK(
        backward_error(fewer, {ones({4})}) ==
        "checkpoint blocks.3: the recomputation saved 1 tensors, forward saved 2, the first that is missing "
        "[4] " +
            on("Float") + same + branch);
  }
  SECTION("fewer tensors in the second of three modules") {
    CheckpointSegment chain;
    const ModuleFn wave = [](Tensors&& in) { return Tensors{in[0].sin()}; };
    const ModuleFn fewer = [&](Tensors&& in) {
      return Tensors{run++ == 0 ? in[0].exp().view({2, 2}) : in[0].view({2, 2})};
    };
    const Tensors out = chain.append(
        "blocks.5", wave, chain.append("blocks.4", fewer, chain.append("blocks.3", wave, {ones({4})})));
    CHECK(error_of([&] { torch::autograd::backward({out[0].sum()}, {}); }) ==
          "checkpoint blocks.4: the recomputation saved tensor number 1 as [2, 2] " + on("Float") +
              ", forward saved [4] " + on("Float") + same +
              "look for state (a counter, a cache, a flag, a global) that changed between forward and "
              "backward, and for branches on it");
  }
  SECTION("more tensors") {
    const ModuleFn more = [&](Tensors&& in) {
      const at::Tensor h = in[0].sin();
      return Tensors{run++ == 0 ? h.exp() : h.sin().exp()};
    };
    CHECK(backward_error(more, {ones({4})}) ==
          "checkpoint blocks.3: the recomputation saves more than the 2 tensors of forward" + same + branch);
  }
  SECTION("other tensors of the same form, by as many operators") {
    const ModuleFn later = [&](Tensors&& in) {
      return Tensors{run++ == 0 ? (in[0] * 2).sin() * 2 : (in[0] * 2 * 2).sin()};
    };
    CHECK(backward_error(later, {ones({4})}) ==
          other + "0, [4] " + on("Float") + ", after 3 operators that need a gradient, forward after 2" +
              same + branch);
  }
  SECTION("a parameter in the place of a result") {
    const at::Tensor w = ones({4});
    const ModuleFn parameter = [&](Tensors&& in) {
      const at::Tensor h = in[0] * 2;
      return Tensors{run++ == 0 ? h.exp() : w.sin() + h};
    };
    CHECK(backward_error(parameter, {ones({4})}) ==
          other + "0, [4] " + on("Float") + ", from a parameter, forward from an operator" + same + branch);
  }
  SECTION("a result that only one of the two has") {
    const bool first = GENERATE(true, false);
    const ModuleFn maybe = [&](Tensors&& in) {
      const bool has = (run++ == 0) == first;
      const at::Tensor h = in[0].exp();
      return Tensors{h, has ? h.detach() + 1 : at::Tensor()};
    };
    const ModuleFn takes = [](Tensors&& in) {
      return Tensors{in[1].defined() ? in[0].exp() * in[1] : in[0].exp()};
    };
    CheckpointSegment chain;
    const Tensors out = chain.append("blocks.4", takes, chain.append("blocks.3", maybe, {ones({4})}));
    const std::string tensor = "[4] " + on("Float");
    CHECK(error_of([&] { torch::autograd::backward({out[0].sum()}, {}); }) ==
          "checkpoint blocks.3: the recomputation returned " +
              (first ? "no tensor as number 1, forward returned " + tensor
                     : "a tensor as number 1, forward returned none") +
              same + branch);
  }
  SECTION("fewer results, which a later module of the segment takes") {
    CheckpointSegment chain;
    const ModuleFn first = [&](Tensors&& in) {
      Tensors out{in[0] * 2};
      if (run++ == 0) out.push_back(in[0] * 3);
      return out;
    };
    const ModuleFn second = [](Tensors&& in) { return Tensors{(in[0] + in[1]).exp()}; };
    const Tensors out = chain.append("blocks.4", second, chain.append("blocks.3", first, {ones({4})}));
    CHECK(error_of([&] { torch::autograd::backward({out[0].sum()}, {}); }) ==
          "checkpoint blocks.3: the recomputation returned 1 tensors, forward returned 2" + same + branch);
  }
}

TEST_CASE("a layer that returns a growing cache is refused, also where backward needs nothing of the cache",
          "[device]") {
  Fixture fixture;
  at::Tensor cache = at::zeros({0, 4}, test_device());
  const bool in_graph = GENERATE(true, false);
  const ModuleFn layer = [&](Tensors&& in) {
    const at::Tensor h = in[0].exp();
    cache = at::cat({cache, h.detach()});
    return Tensors{in_graph ? h * cache.pow(2).sum(0) : h * 2, cache};
  };
  checkpoint("blocks.2", layer, {ones({3, 4})});  // of an earlier token
  const std::string cause =
      "; a segment must recompute the same: dimension 0 grew, as that of a cache which each call appends "
      "to: switch such a cache off in training, or leave this module out of the segments; else look for a "
      "counter or a flag that changed between forward and backward";
  CHECK(backward_error(layer, {ones({3, 4})}) ==
        "checkpoint blocks.3: the recomputation returned tensor number 1 as [9, 4] " + on("Float") +
            ", forward "
            "returned [6, 4] " +
            on("Float") + cause);
}

TEST_CASE("a segment that changes its input in place is refused in forward", "[device]") {
  Fixture fixture;
  const at::Tensor x = at::ones({2, 3}, test_device());
  const ModuleFn in_place = [](Tensors&& in) {
    at::Tensor h = std::move(in[1]);
    return Tensors{h.relu_() * in[0]};
  };
  const auto made = x._version();  // at::ones() writes once or twice, by device
  const int64_t before = cpu_accounts().live_bytes();
  CHECK(error_of([&] {
          checkpoint("blocks.3", in_place, {ones({2, 3}), x});
        }) == "checkpoint blocks.3: changes its input 1, [2, 3] " + on("Float") + ", in place (version " +
                  c10::str(made, " before, ", made + 1, " after") +
                  "), "
                  "but backward needs it as it was to recompute the segment; make that change out of "
                  "place (relu, "
                  "not relu_) or on a copy (tensor.clone())");
  CHECK(cpu_accounts().live_bytes() == before);
}

TEST_CASE("an input or a parameter that is changed in place before backward is refused", "[device]") {
  Fixture fixture;
  const at::Tensor w = ones({4}), x = at::ones({4}, test_device());
  const ModuleFn fn = [&](Tensors&& in) { return Tensors{in[0] * w}; };
  const auto made = x._version(), made_w = w._version();
  const Tensors first = checkpoint("blocks.3", fn, {x});
  x.add_(1);
  CHECK(error_of([&] { torch::autograd::backward({first[0].sum()}, {}); }) ==
        "a tensor [4] saved for backward in blocks.3 was changed in place afterwards (version " +
            c10::str(made, " when saved, ", made + 1) +
            " now), so its gradient would be wrong; make that change out of place, or after backward");
  const Tensors second = checkpoint("blocks.3", fn, {ones({4})});
  {
    const at::NoGradGuard step;
    w.sub_(0.1);
  }
  CHECK(error_of([&] { torch::autograd::backward({second[0].sum()}, {}); }) ==
        "checkpoint blocks.3: its parameter [4] " + on("Float") +
            " was changed in place between forward and backward (version " +
            c10::str(made_w, " then, ", made_w + 1) +
            " now), so backward would not compute with what forward did; change it after backward");
}

TEST_CASE("what a segment reads beside inputs and parameters, changed in place before backward, is refused",
          "[device]") {
  Fixture fixture;
  const auto changed = [](const at::Tensor& tensor) {
    return c10::str(" was changed in place between forward and backward (version ", tensor._version(),
                    " then, ", tensor._version() + 1,
                    " now), so backward would not compute with what forward did; change it after backward");
  };
  const at::Tensor frozen = at::ones({4}, test_device());
  const at::Tensor mask = at::ones({4}, at::device(test_device()).dtype(at::kBool));
  const std::string message = changed(frozen);  // mask is as old
  SECTION("a frozen weight") {
    const ModuleFn fn = [&](Tensors&& in) { return Tensors{(in[0] * 2) * frozen}; };
    const Tensors out = checkpoint("blocks.3", fn, {ones({4})});
    frozen.mul_(2);
    CHECK(error_of([&] { torch::autograd::backward({out[0].sum()}, {}); }) ==
          "checkpoint blocks.3: a tensor that it reads, [4] " + on("Float") + "," + message);
  }
  SECTION("a mask") {
    const ModuleFn fn = [&](Tensors&& in) { return Tensors{(in[0] * 2).masked_fill(mask, 0)}; };
    const Tensors out = checkpoint("blocks.3", fn, {ones({4})});
    mask.logical_not_();
    CHECK(error_of([&] { torch::autograd::backward({out[0].sum()}, {}); }) ==
          "checkpoint blocks.3: a tensor that it reads, [4] " + on("Bool") + "," + message);
  }
  SECTION("what the segment itself changes is not") {
    const ModuleFn fn = [&](Tensors&& in) {
      at::Tensor h = in[0] * 2;
      h.mul_(3);
      return Tensors{h.exp_() * h};
    };
    const at::Tensor x = ones({4});
    const auto segment = torch::autograd::grad({checkpoint("blocks.3", fn, {x})[0].sum()}, {x});
    const auto plain = torch::autograd::grad({fn({x})[0].sum()}, {x});
    CHECK_VALUES(at::equal(segment[0], plain[0]));
  }
}

TEST_CASE("without the engine that asks for the layers a segment is refused") {
  const ModuleFn fn = [](Tensors&& in) { return Tensors{in[0].exp()}; };
  const at::Tensor x = at::ones({4}).requires_grad_(true);
  const std::string without =
      ": no SavedTensorEngineGuard is alive, so autograd would keep every tensor; let one "
      "live from before the first forward pass to after the last backward pass";
  CHECK(error_of([&] { checkpoint("blocks.3", fn, {x}); }) == "checkpoint blocks.3" + without);
  const auto store = std::make_shared<OffloadStore>(0);
  CHECK(error_of([&] { offload("blocks.3", fn, {x}, store); }) == "offload blocks.3" + without);
  const at::NoGradGuard evaluates;
  CHECK_NOTHROW(checkpoint("blocks.3", fn, {x}));
}

TEST_CASE("a segment that returns its input unchanged is refused, one that passes an input on is not",
          "[device]") {
  Fixture fixture;
  const ModuleFn identity = [](Tensors&& in) { return std::move(in); };
  CHECK(error_of([&] { checkpoint("blocks.3", identity, {ones({4})}); }) ==
        "checkpoint blocks.3: returns its input 0, [4] " + on("Float") +
            ", unchanged, so there is nothing to recompute; "
            "leave this module out of the segments, or skip it where it is called");
  const ModuleFn and_nothing = [](Tensors&& in) { return Tensors{in[0], at::Tensor()}; };
  CHECK(error_of([&] { checkpoint("blocks.3", and_nothing, {ones({4})}); }).find("returns its input 0") !=
        std::string::npos);
  const at::Tensor x = ones({4}), c = ones({4});
  const ModuleFn passes_on = [](Tensors&& in) { return Tensors{(in[0] * in[1]).exp(), in[1]}; };
  CheckpointSegment chain;
  const Tensors out = chain.append("blocks.1", passes_on, chain.append("blocks.0", passes_on, {x, c}));
  CHECK(out[1].is_same(c));
  const Tensors gradients = torch::autograd::grad({out[0].sum()}, {x, c});
  const Tensors plain = torch::autograd::grad({((x * c).exp() * c).exp().sum()}, {x, c});
  CHECK_VALUES(at::equal(gradients[0], plain[0]));
  CHECK_VALUES(at::equal(gradients[1], plain[1]));
  const at::NoGradGuard evaluation;
  CHECK_NOTHROW(checkpoint("blocks.3", identity, {ones({4})}));
}

TEST_CASE("a chain in which a module threw takes no other") {
  Fixture fixture;
  CheckpointSegment chain;
  const ModuleFn fails = [](Tensors&&) -> Tensors { throw std::runtime_error("of the user's own"); };
  CHECK_THROWS_AS(chain.append("blocks.0", fails, {ones({4})}), std::runtime_error);
  const ModuleFn fine = [](Tensors&& in) { return Tensors{in[0].exp()}; };
  CHECK(error_of([&] { chain.append("blocks.1", fine, {ones({4})}); }) ==
        "checkpoint blocks.1: continues a segment in which a module threw, or still runs; begin another "
        "CheckpointSegment");
}

TEST_CASE("inputs on two devices are refused, numbers on the cpu are not") {
  Fixture fixture;
  const at::Tensor there = at::ones({2}, at::TensorOptions().device(at::kMeta));
  const ModuleFn fn = [](Tensors&& in) { return Tensors{in[0] * 2}; };
  CHECK(
      error_of([&] {
        checkpoint("blocks.3", fn, {there, at::Tensor(), at::ones({3})});
      }) ==
      "checkpoint blocks.3: inputs on two devices: 0 on meta, 2 on cpu; a segment runs on one: move them to "
      "one before it (tensor.to); only numbers without dimensions may stay on the cpu");
  CHECK_NOTHROW(checkpoint("blocks.3", fn, {there, at::ones({})}));
}

TEST_CASE("backward within a segment's forward pass is refused", "[device]") {
  Fixture fixture;
  const at::Tensor w = ones({4});
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> operations = {
      [](const at::Tensor& x) { return x.exp(); },           // backward needs the result,
      [](const at::Tensor& x) { return x.sin(); },           // the input,
      [&](const at::Tensor& x) { return w * x.detach(); }};  // or a parameter beside it
  for (const auto& operation : operations) {
    const ModuleFn fn = [&](Tensors&& in) {
      const at::Tensor h = operation(in[0]);
      const at::Tensor of = in[0].requires_grad() && &operation != &operations.back() ? in[0] : w;
      return Tensors{torch::autograd::grad({h.sum()}, {of})[0] * h};
    };
    CHECK(error_of([&] { checkpoint("blocks.3", fn, {ones({4})}); }) ==
          "checkpoint blocks.3: backward ran inside the segment, whose forward pass has not ended; take "
          "gradients outside of segments, or leave this module out of them");
  }
}
