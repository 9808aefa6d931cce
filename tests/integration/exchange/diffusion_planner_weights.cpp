// diffusion_planner_weights PRESET IN OUT [KEY]: reads weights of the driving model into a model of that
// preset, and writes the model's parameters as torch.save does. For diffusion_planner_weights_test.py.
#include <cstdio>
#include <string>
#include <vector>

#include "support/diffusion_planner/preset.h"
#include "toolkit/checkpoint/weights_fit.h"
#include "toolkit/core/errors.h"
#include "toolkit/families/diffusion_planner/trainable.h"
#include "toolkit/io/torch_file.h"

namespace {

using namespace dtk;

void run(const std::vector<std::string>& arguments) {
  const std::string &in = arguments.at(1), key = arguments.size() > 3 ? arguments[3] : "";
  RunConfig config;
  config.train.model = "diffusion_planner";
  models::DiffusionPlannerOptions& options = diffusion_planner::options_of(config).model;
  options = test::diffusion_planner_preset(arguments.at(0));
  const models::DiffusionPlanner model(options, at::kCPU);
  FileSystem& files = posix_file_system();
  const Weights weights = open_weights(files, {in, key, "--weights " + in, "--key " + key, "--key"});
  make_model(config, at::kMeta)->check_fit(weights);
  copy_weights(weights, model.parameters());
  std::vector<NamedTensor> tensors;
  for (const auto& [name, parameter] : model.parameters()) tensors.push_back({name, parameter});
  write_file_atomically(files, arguments.at(2), [&](WritableFile& file) { write_torch_file(file, tensors); });
  std::printf("%s\n", weights.name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
