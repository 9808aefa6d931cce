#include "support/llava/dialogues.h"

#include <stdexcept>

#include "toolkit/data/image.h"

namespace dtk::test {
namespace {

std::string picture(int number) {
  Image image{40, 56, 3, std::vector<uint8_t>(40 * 56 * 3)};
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>((i * 7 + static_cast<size_t>(number) * 61) % 251);
  return encode_png(image);
}

}  // namespace

nlohmann::json dialogue(const std::string& id, const std::vector<std::string>& pictures,
                        const std::vector<std::string>& turns) {
  nlohmann::json one = {{"id", id}, {"conversations", nlohmann::json::array()}};
  if (pictures.size() == 1) one["image"] = pictures.front();
  if (pictures.size() > 1) one["image"] = pictures;
  for (size_t i = 0; i < turns.size(); ++i)
    one["conversations"].push_back({{"from", i % 2 == 0 ? "human" : "gpt"}, {"value", turns[i]}});
  return one;
}

DialogueFolder::DialogueFolder() {
  std::filesystem::copy_file(std::filesystem::path(DTK_FIXTURES) / "tokenizer.model",
                             folder_ / "tokenizer.model");
  for (int i = 0; i < 3; ++i) folder_.write(std::to_string(i) + ".png", picture(i));
  write("list.json", some());
}

std::string DialogueFolder::write(const std::string& name, const nlohmann::json& list) const {
  return folder_.write(name, list.dump()).string();
}

nlohmann::json DialogueFolder::some() const {
  nlohmann::json list = nlohmann::json::array();
  for (int i = 0; i < 4; ++i) {
    const std::string id = std::to_string(i), file = std::to_string(i % 3) + ".png";
    const std::string longer(static_cast<size_t>(i), 'x');
    list.push_back(dialogue(id, {file}, {"<image>\nwhat is it?", "a bag" + longer}));
    list.push_back(dialogue(id, {}, {"is there a coat?", "yes", "wo?", "oben links" + longer}));
    list.push_back(dialogue(id, {file, "0.png"}, {"<image> and <image>: is it alike?", "no, a coat"}));
  }
  return list;
}

LoadedConfig DialogueFolder::config(const std::vector<std::string>& overrides) const {
  const std::string text =
      "[train]\nmodel = \"llava\"\nsteps = 6\nparts = [\"vision\", \"projector\", \"text\"]\n"
      "threads = 1\nout = '" +
      path("run") +
      "'\n[llava]\nbase = \"fp32\"\nloss_chunk = 7\n[llava.vision]\nhidden = 32\nmlp = 64\n"
      "depth = 3\nheads = 2\nimage = 28\npatch = 7\n[llava.text]\nhidden = 32\nmlp = 96\n"
      "depth = 2\nheads = 2\nvocabulary = 320\n[llava.data]\nconversations = '" +
      path("list.json") + "'\ntokenizer = '" + path("tokenizer.model") +
      "'\nmax_length = 96\n[data]\nbatch = 4\n[optimizer]\nlr = 1e-3\nclip = 0\n"
      "[policies.precision]\nenabled = false\n";
  return parse_config(text, "llava.toml", overrides);
}

}  // namespace dtk::test
