#include "judging/judging.h"

#include <ATen/ATen.h>

#include <limits>

#include "judging/training.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/safetensors_file.h"
#include "support/files/temporary_folder.h"
#include "toolkit/core/errors.h"
#include "toolkit/io/safetensors.h"

using namespace dtk;
using namespace dtk::judging;
using dtk::test::error_text;
using dtk::test::TemporaryFolder;

namespace {

at::Tensor labels_of(const std::vector<int64_t>& labels) {
  return at::tensor(labels, at::kLong);
}

/// Up to the rounding of float32, which depends on the size of the batch.
bool close(const at::Tensor& a, const at::Tensor& b) {
  return at::allclose(a, b, 1e-4, 1e-5);
}

/// What read_samples says of a file of these tensors; the file's path is cut off the front.
std::string samples_error(const std::vector<NamedTensor>& tensors) {
  const TemporaryFolder folder;
  const auto path = folder / "samples.safetensors";
  const auto file = posix_file_system().create(path);
  write_safetensors(*file, tensors);
  file->close();
  const std::string text = error_text<DataError>([&] { read_samples(posix_file_system(), path); });
  return text.substr(text.starts_with(path.string()) ? path.string().size() + 2 : 0);
}

const at::Tensor images = at::zeros({2, 1, 28, 28});
const at::Tensor labels = labels_of({0, 9});

}  // namespace

TEST_CASE("judge: accuracy in total and per class") {
  const at::Tensor asked = labels_of({0, 0, 0, 3, 9, 9});
  const at::Tensor seen = labels_of({0, 3, 0, 3, 0, 9});
  CHECK(accuracy(seen, asked) == Approx(4.0 / 6.0));
  const auto counts = count_by_class(seen, asked);
  CHECK((counts[0].right == 2 && counts[0].asked == 3));
  CHECK((counts[3].right == 1 && counts[3].asked == 1));
  CHECK((counts[9].right == 1 && counts[9].asked == 2));
  CHECK((counts[5].right == 0 && counts[5].asked == 0));
}

TEST_CASE("judge: bounds are missed with what was seen and what is wanted") {
  Judge::Score score;
  score.accuracy = 0.25;
  score.distance = 40.0;
  CHECK(missed_bounds(score, {}).empty());
  CHECK(missed_bounds(score, {0.25, 40.0}).empty());
  CHECK(missed_bounds(score, {0.2501, 39.99}) ==
        std::vector<std::string>{"accuracy is 0.2500; at least 0.2501 is wanted",
                                 "the Fréchet distance is 40.00; at most 39.99 is wanted"});
  score.distance = std::numeric_limits<double>::quiet_NaN();
  CHECK(missed_bounds(score, {std::nullopt, 40.0}).size() == 1);
}

TEST_CASE("judge: the line for programs") {
  Judge::Score score;
  score.accuracy = 0.947;
  score.distance = 11.62;
  score.samples = 500;
  CHECK(summary(score, 0.9214) == "judge: accuracy 0.947 fd 11.6 samples 500 judge_accuracy 0.921");
  const std::string text = report(score, 0.9214);
  CHECK(text.ends_with("\n" + summary(score, 0.9214) + "\n"));
  CHECK(text.find("  8 bag               0 / 0      not asked for\n") != std::string::npos);
}

TEST_CASE("judge: in evaluation an image's features do not depend on the others") {
  JudgeNet net(7);
  const at::Tensor some = at::linspace(-1, 1, 6 * 28 * 28).reshape({6, 1, 28, 28});
  const Prediction all = predict(net, some);
  CHECK(all.features.sizes() == at::IntArrayRef({6, 64}));
  CHECK(all.features.scalar_type() == at::kDouble);
  CHECK(close(predict(net, some.narrow(0, 4, 1)).features, all.features.narrow(0, 4, 1)));
  CHECK(at::equal(predict(net, some * 5).features, predict(net, (some * 5).clamp(-1, 1)).features));

  net.forward(some, /*training=*/true);
  CHECK_FALSE(close(predict(net, some).features, all.features));
}

TEST_CASE("judge: saved weights give the same predictions, running statistics included") {
  const TemporaryFolder folder;
  JudgeNet net(7);
  const at::Tensor some = at::linspace(-1, 1, 4 * 28 * 28).reshape({4, 1, 28, 28});
  net.forward(some, /*training=*/true);
  save_judge(posix_file_system(), folder / "judge.safetensors", net, {0.5, 2.0});
  JudgeNet loaded = load_judge(posix_file_system(), folder / "judge.safetensors");
  CHECK(at::equal(predict(loaded, some).features, predict(net, some).features));
  CHECK(test::read_safetensors(posix_file_system(), folder / "judge.safetensors").metadata.at("accuracy") ==
        "0.500000");
  CHECK(posix_file_system().list(folder.path()) == std::vector<std::string>{"judge.safetensors"});
}

TEST_CASE("judge: files of samples that do not hold what they should") {
  CHECK(samples_error({{"samples", images}}) ==
        "holds no tensor \"labels\"; wanted: \"samples\" (N, 1, 28, 28) and \"labels\" (N)");
  CHECK(samples_error({{"samples", at::zeros({2, 3, 28, 28})}, {"labels", labels}}) ==
        "\"samples\" is Float [2, 3, 28, 28]; wanted: Float (N, 1, 28, 28), N at least 2");
  CHECK(samples_error({{"samples", images.to(at::kDouble)}, {"labels", labels}}) ==
        "\"samples\" is Double [2, 1, 28, 28]; wanted: Float (N, 1, 28, 28), N at least 2");
  CHECK(samples_error({{"samples", images.narrow(0, 0, 1)}, {"labels", labels_of({1})}}) ==
        "\"samples\" is Float [1, 1, 28, 28]; wanted: Float (N, 1, 28, 28), N at least 2");
  CHECK(samples_error({{"samples", images.log()}, {"labels", labels}}) ==
        "\"samples\" holds 1568 values that are not finite");
  CHECK(samples_error({{"samples", images}, {"labels", labels_of({1, 2, 3})}}) ==
        "\"labels\" is Long [3]; wanted: Long [2], one for each sample");
  CHECK(samples_error({{"samples", images}, {"labels", labels_of({3, 10})}}) ==
        "\"labels\" lie in [3, 10]; allowed: 0 to 9");
  CHECK(samples_error({{"samples", images}, {"labels", labels}}) == "(nothing was thrown)");
}

TEST_CASE("judge: a missing data set is named") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name) { folder.write(name, "x"); };
  write("train-images-idx3-ubyte.gz");
  write("train-labels-idx1-ubyte.gz");
  write("t10k-images-idx3-ubyte.gz");
  CHECK(missing_dataset(posix_file_system(), folder.path()) ==
        "Fashion-MNIST is not on this machine: there is no " +
            (folder / "t10k-labels-idx1-ubyte.gz").string() +
            "; install the Debian package dataset-fashion-mnist");
  write("t10k-labels-idx1-ubyte.gz");
  CHECK(missing_dataset(posix_file_system(), folder.path()).empty());
}
