// llava_outputs MODEL TEXTS: tokens of each text of a JSON list by a SentencePiece model, as JSON.
// llava_outputs CONFIG WEIGHTS INPUTS OUTPUTS [bf16]: a LLaVA's logits, loss, gradients' norms and greedy
// continuation, under autocast with bf16, for llava_transformers_test.py. INPUTS: ids (N, T), pictures (M, 3,
// S, S), picture_rows, label_rows, labels, prompts (N, P) of text alone.
#include <ATen/ATen.h>
#include <dtk/policies/guards.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "toolkit/checkpoint/weights.h"
#include "toolkit/config/config_io.h"
#include "toolkit/families/llava/tokenizer.h"
#include "toolkit/families/llava/trainable.h"
#include "toolkit/io/file_system.h"
#include "toolkit/io/safetensors.h"

namespace {

using namespace dtk;

int run(char** argv, bool bf16) {
  const policies::AutocastGuard autocast(at::kCPU, bf16, at::kBFloat16);
  FileSystem& files = posix_file_system();
  const LoadedConfig loaded = load_config(files, argv[1], {});
  const llava::TrainableLlava model(loaded.config, at::kCPU);
  load_weights(open_weights(files, {argv[2], "", "WEIGHTS", "", ""}), model);
  std::map<std::string, at::Tensor> in;
  for (const StoredTensor& tensor : open_safetensors(files, argv[3])) in[tensor.name] = tensor.read();
  const auto batch = [&] {
    return models::LlavaBatch{
        in.at("ids"),          in.at("pictures"),   at::arange(in.at("picture_rows").size(0)),
        in.at("picture_rows"), in.at("label_rows"), in.at("labels")};
  };
  std::vector<NamedTensor> out;
  const at::Tensor loss = model.model().loss(batch(), /*training=*/false);
  torch::autograd::backward({loss}, {});
  out.push_back({"loss", loss.detach().reshape({1})});
  for (const auto& [name, parameter] : model.parameters()) {
    if (parameter.grad().defined()) out.push_back({"grad." + name, parameter.grad()});
  }
  const at::NoGradGuard no_grad;
  out.push_back({"logits", model.model().logits(batch()).to(at::kFloat)});
  models::LlavaBatch prompts;
  prompts.ids = in.at("prompts");
  prompts.pictures = at::empty({0, 3, in.at("pictures").size(2), in.at("pictures").size(3)});
  prompts.feature_rows = prompts.picture_rows = at::empty({0}, at::kLong);
  out.push_back({"greedy", *model.model().continued(prompts, 8, {})});
  write_file_atomically(files, argv[4], [&](WritableFile& file) { write_safetensors(file, out); });
  return 0;
}

int tokenize(char** argv) {
  const llava::Tokenizer tokenizer(argv[1]);
  nlohmann::json all = nlohmann::json::array();
  for (const nlohmann::json& text : nlohmann::json::parse(posix_file_system().read(argv[2]))) {
    nlohmann::json ids = nlohmann::json::array();
    for (const llava::Token& token : tokenizer.encode(text.get<std::string>())) ids.push_back(token.id);
    all.push_back(std::move(ids));
  }
  std::printf("%s\n", all.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool bf16 = argc == 6 && std::string(argv[5]) == "bf16";
  if (argc != 5 && argc != 3 && !bf16) return 2;
  try {
    return argc == 3 ? tokenize(argv) : run(argv, bf16);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "llava_outputs: %s\n", error.what());
    return 1;
  }
}
