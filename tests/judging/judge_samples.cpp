// judge-samples: trains a small classifier on the real Fashion-MNIST and lets it judge samples.
#include <c10/util/Exception.h>
#include <malloc.h>

#include <climits>
#include <cstdio>
#include <cxxopts.hpp>

#include "controls.h"
#include "judging.h"
#include "toolkit/core/clock.h"
#include "toolkit/core/errors.h"
#include "training.h"

namespace {

using namespace dtk;
using namespace dtk::judging;

constexpr int skipped = 77;  // what SKIP_RETURN_CODE of the tests names

struct Arguments {
  std::string weights, samples, data;
  bool train = false;
  bool help = false;
  Bounds bounds;
};

cxxopts::Options make_options() {
  cxxopts::Options options("judge-samples",
                           "Trains a small classifier on the real Fashion-MNIST and lets it judge samples.");
  const auto text = cxxopts::value<std::string>();
  const auto number = cxxopts::value<double>();
  cxxopts::OptionAdder add = options.add_options();
  add("weights", "the judge's weights; written by --train", text, "FILE");
  add("train", "train the judge, and check that it can tell bad images");
  add("samples", "judge these: \"samples\" (N, 1, 28, 28), \"labels\" (N)", text, "FILE");
  add("min-accuracy", "fail below this accuracy, of the samples or (--train) of the judge", number, "X");
  add("max-fd", "fail above this Fréchet distance", number, "Y");
  add("data", "folder of Fashion-MNIST",
      cxxopts::value<std::string>()->default_value("/usr/share/datasets/fashion-mnist"), "DIR");
  add("help", "this text");
  return options;
}

std::optional<double> optional_number(const cxxopts::ParseResult& result, const std::string& name) {
  if (result.count(name) == 0) return std::nullopt;
  return result[name].as<double>();
}

Arguments parse(cxxopts::Options& options, int argc, char** argv) {
  const cxxopts::ParseResult result = options.parse(argc, argv);
  Arguments arguments;
  arguments.help = result.count("help") > 0;
  if (arguments.help) return arguments;
  if (!result.unmatched().empty()) {
    throw ConfigError("unexpected argument \"" + result.unmatched().front() + "\"; see --help");
  }
  if (result.count("weights") != 1) throw ConfigError("--weights FILE is missing; see --help");
  arguments.weights = result["weights"].as<std::string>();
  arguments.data = result["data"].as<std::string>();
  arguments.train = result.count("train") > 0;
  if (result.count("samples") > 0) arguments.samples = result["samples"].as<std::string>();
  if (arguments.train == !arguments.samples.empty()) {
    throw ConfigError("give either --train or --samples FILE; see --help");
  }
  arguments.bounds = {optional_number(result, "min-accuracy"), optional_number(result, "max-fd")};
  if (arguments.train && arguments.bounds.max_distance) throw ConfigError("--max-fd belongs to --samples");
  return arguments;
}

// Returns the exit code for what was missed.
int conclude(const std::vector<std::string>& missed) {
  for (const std::string& message : missed) std::fprintf(stderr, "judge-samples: %s\n", message.c_str());
  return missed.empty() ? 0 : 1;
}

std::vector<std::string> check_controls(Judge& judge) {
  std::vector<std::string> missed;
  for (const Control& control : run_controls(judge)) {
    std::printf("  control: %-28s accuracy %.3f fd %.1f (wanted: %s)\n", control.name.c_str(),
                control.score.accuracy, control.score.distance, control.wanted.c_str());
    if (!control.told) {
      missed.push_back("the judge does not reject " + control.name + ": wanted " + control.wanted);
    }
  }
  return missed;
}

// A judge that misses something is not written.
int train(const Arguments& arguments) {
  SteadyClock clock;
  const double begin = clock.seconds();
  const auto report_epoch = [](int64_t epoch, int64_t epochs, double loss) {
    std::printf("epoch %lld of %lld: loss %.4f\n", static_cast<long long>(epoch),
                static_cast<long long>(epochs), loss);
    std::fflush(stdout);
  };
  JudgeNet net = train_judge(open_training_set(arguments.data), report_epoch);
  const double seconds = clock.seconds() - begin;
  Judge judge(std::move(net), read_all(*open_test_set(arguments.data)));
  const TrainingFacts facts{judge.own_accuracy(), seconds};
  std::printf("accuracy on %lld real test images: %.4f, trained in %.1f s\n",
              static_cast<long long>(judge.test_set().labels.size(0)), facts.accuracy, facts.seconds);
  for (const int64_t count : {500, 1000}) {
    std::printf("  scale: fd %.2f for %lld real test images against the others\n",
                judge.distance_among_real(count), static_cast<long long>(count));
  }
  std::vector<std::string> missed = check_controls(judge);
  if (arguments.bounds.min_accuracy && !(facts.accuracy >= *arguments.bounds.min_accuracy)) {
    missed.push_back("accuracy on real test images is " + std::to_string(facts.accuracy) + "; at least " +
                     std::to_string(*arguments.bounds.min_accuracy) + " is wanted");
  }
  if (missed.empty()) save_judge(posix_file_system(), arguments.weights, judge.net(), facts);
  return conclude(missed);
}

int judge_file(const Arguments& arguments) {
  FileSystem& files = posix_file_system();
  const LabelledImages samples = read_samples(files, arguments.samples);
  Judge judge(load_judge(files, arguments.weights), read_all(*open_test_set(arguments.data)));
  const double outside = share_out_of_range(samples);
  const Judge::Score score = judge.score(samples);
  const std::vector<std::string> missed = missed_bounds(score, arguments.bounds);
  if (outside > 0) {
    std::printf(
        "%.2f %% of the pixel values lie outside [-1, 1] and are judged as an image file shows them\n",
        100 * outside);
  }
  std::printf("%s", report(score, judge.own_accuracy()).c_str());
  std::fflush(stdout);
  return conclude(missed);
}

int run(int argc, char** argv) {
  cxxopts::Options options = make_options();
  const Arguments arguments = parse(options, argc, argv);
  if (arguments.help) {
    std::printf("%s", options.help().c_str());
    return 0;
  }
  const std::string missing = missing_dataset(posix_file_system(), arguments.data);
  if (!missing.empty()) {
    std::printf("SKIPPED: %s\n", missing.c_str());
    return skipped;
  }
  return arguments.train ? train(arguments) : judge_file(arguments);
}

// glibc gives freed activations back to the system and gets them again, page by page, at every step: a
// quarter of the training time.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
}

int fail(const char* message, ExitCode code) {
  std::fprintf(stderr, "judge-samples: %s\n", message);
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    return fail(error.what(), error.code);
  } catch (const cxxopts::exceptions::exception& error) {
    return fail(error.what(), ExitCode::configuration);
  } catch (const c10::Error& error) {
    return fail(error.what_without_backtrace(), ExitCode::failure);
  } catch (const std::exception& error) {
    return fail(error.what(), ExitCode::failure);
  }
}
