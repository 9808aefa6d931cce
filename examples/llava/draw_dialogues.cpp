// draw-dialogues: pictures of 2 x 2 photographs of Fashion-MNIST and dialogues about them, in the form in
// which LLaVA is trained; and all their text, for train-tokenizer.
#include <cstdio>
#include <cxxopts.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "llava/dialogues.h"
#include "support/arguments.h"
#include "toolkit/core/errors.h"
#include "toolkit/core/random_streams.h"
#include "toolkit/data/idx.h"
#include "toolkit/data/image.h"
#include "toolkit/io/file_system.h"

namespace {

using namespace dtk;
using namespace dtk::examples;
using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr int64_t kSide = 28;

struct Lists {
  Json captions = Json::array(), questions = Json::array(), german = Json::array();
  std::vector<std::string> texts;
};

// Photographs of one half of the data set, never of both.
class Scenes {
 public:
  Scenes(const Path& photographs, const std::string& half, uint64_t seed)
      : source_(open_idx(photographs / (half + "-images-idx3-ubyte.gz"),
                         photographs / (half + "-labels-idx1-ubyte.gz"))),
        seed_(seed) {}

  /// Draws scene `number`, writes its picture and returns what stands where.
  Scene draw(int64_t number, const Path& picture) const {
    Image image{2 * kSide, 2 * kSide, 1, std::vector<uint8_t>(4 * kSide * kSide)};
    std::vector<float> values(kSide * kSide);
    Scene scene{};
    for (size_t place = 0; place < scene.size(); ++place) {
      const uint64_t drawn = draw64(seed_, static_cast<uint64_t>(number) * 4 + place);
      const auto index = static_cast<int64_t>(drawn % static_cast<uint64_t>(source_->size()));
      scene.at(place) = static_cast<int>(source_->read_image(index, values.data()));
      const int64_t top = place < 2 ? 0 : kSide, left = place % 2 == 0 ? 0 : kSide;
      for (int64_t i = 0; i < kSide * kSide; ++i) {
        const float value = (values[static_cast<size_t>(i)] + 1) * 127.5F + 0.5F;
        image.pixels[static_cast<size_t>((top + i / kSide) * 2 * kSide + left + i % kSide)] =
            static_cast<uint8_t>(value);
      }
    }
    write_file_atomically(posix_file_system(), picture, encode_png(image));
    return scene;
  }

 private:
  const std::unique_ptr<ImageSource> source_;
  const uint64_t seed_;
};

std::string picture_name(const std::string& half, int64_t number) {
  return "pictures/" + half + "-" + std::to_string(number) + ".png";
}

Json entry(const std::string& id, const std::string& picture, const Exchange& about) {
  Json one = {{"id", id}};
  if (!picture.empty()) one["image"] = picture;
  one["kind"] = name_of(about.kind);
  one["language"] = name_of(about.language);
  one["conversations"] = {
      {{"from", "human"}, {"value", (picture.empty() ? "" : "<image>\n") + about.question}},
      {{"from", "gpt"}, {"value", about.answer}}};
  return one;
}

/// What is said of a scene: draws of their own for each exchange.
class Speaker {
 public:
  Speaker(const Scene& scene, uint64_t seed, std::vector<std::string>& texts)
      : scene_(scene), seed_(seed), texts_(texts) {}

  // As it is trained on, so that train-tokenizer learns the template's words, too.
  Exchange exchange(Question kind, Language language) {
    Exchange one = exchange_about(scene_, kind, language, draw64(seed_, drawn_++));
    texts_.push_back("USER: " + one.question + " ASSISTANT: " + one.answer);
    return one;
  }

 private:
  const Scene& scene_;
  const uint64_t seed_;
  uint64_t drawn_ = 0;
  std::vector<std::string>& texts_;
};

// Captions; questions of all kinds in English, beside German that is read without a picture, as whoever
// learns it for pictures has read it before; German for pictures, beside some English.
void add_to_train_on(const Scene& scene, const std::string& picture, int64_t number, uint64_t seed,
                     Lists& lists) {
  using enum Question;
  const std::string id = std::to_string(number);
  Speaker speaker(scene, seed, lists.texts);
  const auto add = [&](Question kind, Language language, Json& into, bool shows = true) {
    into.push_back(entry(id, shows ? picture : "", speaker.exchange(kind, language)));
  };
  add(describe, Language::english, lists.captions);
  for (const Question kind : {what, is, where, list}) add(kind, Language::english, lists.questions);
  if (number % 2 == 0) add(describe, Language::english, lists.questions);
  if (number % 2 == 1) add(describe, Language::german, lists.questions, /*shows=*/false);
  for (const Question kind : {describe, what}) add(kind, Language::german, lists.german);
  add(std::array{describe, what, is, where}.at(static_cast<size_t>(number % 4)), Language::english,
      lists.german);
}

// One question of each kind, each alone.
void add_to_ask(const Scene& scene, const std::string& picture, int64_t number, uint64_t seed, Lists& lists) {
  using enum Question;
  const std::string id = std::to_string(number);
  Speaker speaker(scene, seed, lists.texts);
  const auto add = [&](Question kind, Language language, Json& into) {
    into.push_back(entry(id, picture, speaker.exchange(kind, language)));
  };
  add(describe, Language::english, lists.captions);
  for (const Question kind : {describe, what, is, where}) add(kind, Language::english, lists.questions);
  for (const Question kind : {describe, what}) add(kind, Language::german, lists.german);
}

// The questions alone, about the pictures that they are about or, `shifted`, about another scene's: whoever
// answers without looking does as well there.
Json questions_of(const Json& list, const std::string& half, int64_t scenes, bool shifted) {
  Json questions = Json::array();
  for (Json one : list) {
    if (shifted) {
      const int64_t other = (std::stoll(one.at("id").get<std::string>()) + 1) % scenes;
      one["image"] = picture_name(half, other);
    }
    one["conversations"].erase(one["conversations"].size() - 1);
    questions.push_back(std::move(one));
  }
  return questions;
}

void write_asked(const Path& out, const std::string& half, const std::string& kind, const Json& list,
                 int64_t scenes) {
  FileSystem& files = posix_file_system();
  const std::string begin = half + "_" + kind;
  write_file_atomically(files, out / (begin + "_asked.json"),
                        questions_of(list, half, scenes, false).dump(1) + "\n");
  write_file_atomically(files, out / (begin + "_other.json"),
                        questions_of(list, half, scenes, true).dump(1) + "\n");
}

void write_lists(const Path& out, const std::string& half, const Lists& lists) {
  FileSystem& files = posix_file_system();
  write_file_atomically(files, out / (half + "_captions.json"), lists.captions.dump(1) + "\n");
  write_file_atomically(files, out / (half + "_questions.json"), lists.questions.dump(1) + "\n");
  write_file_atomically(files, out / (half + "_german.json"), lists.german.dump(1) + "\n");
}

// The texts for train-tokenizer, one a line.
void write_texts(const Path& file, const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += text + "\n";
  write_file_atomically(posix_file_system(), file, lines);
}

void run(int argc, char** argv) {
  cxxopts::Options options("draw-dialogues",
                           "Pictures of 2 x 2 photographs of Fashion-MNIST, and dialogues about them");
  options.add_options()("out", "folder, new", cxxopts::value<std::string>())(
      "photographs", "folder of Fashion-MNIST",
      cxxopts::value<std::string>()->default_value("/usr/share/datasets/fashion-mnist"))(
      "scenes", "to train on", cxxopts::value<int64_t>()->default_value("8000"))(
      "held-out", "to be judged by", cxxopts::value<int64_t>()->default_value("1000"))(
      "seed", "of all draws", cxxopts::value<uint64_t>()->default_value("0"))("help", "this text");
  const cxxopts::ParseResult given = ::examples::parsed(options, argc, argv);
  if (given.count("help") > 0) {
    std::printf("%s", options.help().c_str());
    return;
  }
  if (given.count("out") == 0) throw ConfigError("--out is missing: the folder to create");
  const Path out = given["out"].as<std::string>(), photographs = given["photographs"].as<std::string>();
  const int64_t scenes_to_train = given["scenes"].as<int64_t>(), held_out = given["held-out"].as<int64_t>();
  // Two, so that there is another one to ask about.
  if (scenes_to_train < 1 || held_out < 2)
    throw ConfigError("--scenes has to be 1 or more, and --held-out 2 or more");
  FileSystem& files = posix_file_system();
  if (files.exists(out)) throw ConfigError(out.string() + ": is there already; name a new folder");
  const uint64_t seed = given["seed"].as<uint64_t>();
  const auto scenes_of = [&](const char* half) {
    return Scenes(photographs, half, stream_seed(static_cast<int64_t>(seed), half));
  };
  const Scenes trained_on = scenes_of("train"), asked_about = scenes_of("t10k");
  files.create_directories(out / "pictures");
  for (const auto& [half, count] : {std::pair<std::string, int64_t>("train", scenes_to_train),
                                    std::pair<std::string, int64_t>("t10k", held_out)}) {
    const Scenes& scenes = half == "train" ? trained_on : asked_about;
    const bool is_trained_on = half == "train";
    Lists lists;
    for (int64_t i = 0; i < count; ++i) {
      const std::string picture = picture_name(half, i);
      const Scene scene = scenes.draw(i, out / picture);
      (is_trained_on ? add_to_train_on : add_to_ask)(
          scene, picture, i,
          draw64(stream_seed(static_cast<int64_t>(seed), half + " words"), static_cast<uint64_t>(i)), lists);
    }
    write_lists(out, half, lists);
    if (is_trained_on) {
      write_texts(out / "texts.txt", lists.texts);
      continue;
    }
    write_asked(out, half, "captions", lists.captions, count);
    write_asked(out, half, "questions", lists.questions, count);
    write_asked(out, half, "german", lists.german, count);
  }
  std::printf("%s\n", out.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  return ::examples::exit_code_of("draw-dialogues", [&] { run(argc, argv); });
}
