#include "toolkit/families/llava/answers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/families/llava/dialogue_source.h"
#include "toolkit/families/llava/pictures.h"
#include "toolkit/families/llava/trainable.h"
#include "toolkit/io/json.h"
#include "toolkit/train/trained_model.h"

namespace dtk::llava {
namespace {

using Json = nlohmann::ordered_json;

class Answers final : public TensorDrawing {
 public:
  Answers(FileSystem& files, const SampleSource& source, const SampleArguments& arguments)
      : source_(source),
        out_(arguments.out),
        count_(arguments.given<int64_t>("tokens").value_or(64)),
        options_(options_of(source_.config).data),
        model_(models::resolved(options_of(source_.config).model)) {
    check_out_folder(files, out_);
    options_.tokenizer = arguments.given<std::string>("tokenizer").value_or(options_.tokenizer);
    if (options_.tokenizer.empty())
      throw ConfigError("--ask: llava.data.tokenizer is not set; name the model's with --tokenizer");
    const std::string list = arguments.given<std::string>("ask").value();
    folder_ = arguments.given<std::string>("pictures").value_or(parent_of(list).string());
    tokenizer_ = std::make_unique<Tokenizer>(options_.tokenizer);
    if (!tokenizer_->fits(*model_.text.vocabulary)) {
      throw ConfigError(
          fmt::format("--ask: the tokenizer {} has {} tokens, and the model {}; name its own with "
                      "--tokenizer",
                      options_.tokenizer, tokenizer_->size(), *model_.text.vocabulary));
    }
    questions_ = read_dialogues(list, options_.style, /*asks=*/true);
    for (const Dialogue& question : questions_) {
      for (const std::string& name : question.pictures) {
        if (!files.exists(folder_ / name) || files.is_folder(folder_ / name))
          throw DataError(fmt::format(
              "--ask {}: {}: no such file; pictures are looked for in {}, or where --pictures says", list,
              in_quotes(name), shown(folder_)));
      }
    }
    constexpr int64_t kAnyLength = 1 << 20;
    for (const Dialogue& question : questions_)
      prompts_.push_back(
          spread(tokens_of(question, options_, *tokenizer_), model_.image_tokens(), kAnyLength));
  }

  std::string counted() const override {
    return fmt::format("{} answer{}", questions_.size(), questions_.size() == 1 ? "" : "s");
  }

  std::vector<NamedTensor> draw(c10::Device device, const KeepGoing& keep_going) const override {
    const at::Tensor all = at::empty({std::ssize(questions_), count_}, at::kLong);
    const bool done = with_trained<TrainableLlava>(
        source_, source_.config, device,
        [&](const TrainableLlava& model) { return draw_all(model, keep_going, all); });
    return done ? std::vector<NamedTensor>{{"answers", all}} : std::vector<NamedTensor>{};
  }

  void write(FileSystem& files, const std::vector<NamedTensor>& samples) const override {
    Json answers = Json::array();
    for (size_t i = 0; i < questions_.size(); ++i) {
      const at::Tensor row = samples.front().tensor.select(0, static_cast<int64_t>(i));
      std::vector<int64_t> ids(row.const_data_ptr<int64_t>(), row.const_data_ptr<int64_t>() + count_);
      answers.push_back({{"id", questions_[i].id}, {"answer", text_of(ids)}});
    }
    write_file_atomically(files, out_, json_text(answers, NotUtf8::replaced));
  }

 private:
  // Prompts of one length go together.
  bool draw_all(const TrainableLlava& model, const KeepGoing& keep_going, const at::Tensor& all) const {
    std::map<int64_t, std::vector<int64_t>> by_length;
    for (int64_t i = 0; i < std::ssize(prompts_); ++i)
      by_length[std::ssize(prompts_[static_cast<size_t>(i)].ids)].push_back(i);
    const int64_t at_once = samples_at_once(source_.config), passes = std::ssize(prompts_) * count_;
    int64_t done = 0;
    for (const auto& [length, alike] : by_length) {
      for (size_t first = 0; first < alike.size(); first += static_cast<size_t>(at_once)) {
        const size_t end = std::min(alike.size(), first + static_cast<size_t>(at_once));
        const std::vector<int64_t> some(alike.begin() + static_cast<int64_t>(first),
                                        alike.begin() + static_cast<int64_t>(end));
        const auto go_on = [&](int64_t token) {
          return !keep_going || keep_going(done + token * std::ssize(some), passes);
        };
        const auto tokens = model.model().continued(prompts_of(some, model.device()), count_, go_on);
        if (!tokens) return false;
        const at::Tensor there = tokens->to(at::kCPU);
        for (int64_t i = 0; i < std::ssize(some); ++i)
          all.select(0, some[static_cast<size_t>(i)]).copy_(there.select(0, i));
        done += std::ssize(some) * count_;
      }
    }
    return true;
  }

  models::LlavaBatch prompts_of(const std::vector<int64_t>& some, c10::Device device) const {
    std::vector<SampleSize> sizes;
    for (const int64_t i : some) sizes.push_back(prompts_[static_cast<size_t>(i)].size());
    const int64_t length = sizes.front().tokens;
    Batch batch = allocate_batch(sizes, length, model_.image_tokens(), *model_.vision.image, at::kFloat);
    const auto& layout = static_cast<const Layout&>(*batch.layout);
    for (int64_t row = 0; row < std::ssize(some); ++row) {
      const auto i = static_cast<size_t>(some[static_cast<size_t>(row)]);
      write_sample(prompts_[i], layout.place(batch, row), [&](int64_t number, const at::Tensor& into) {
        read_picture(folder_ / questions_[i].pictures[static_cast<size_t>(number)], options_.aspect_ratio,
                     into);
      });
    }
    for (at::Tensor& tensor : batch.tensors) tensor = tensor.to(device);
    return llava_batch(std::move(batch));
  }

  // Up to its end, which in `plain` is a line's, without what the template puts around it.
  std::string text_of(std::vector<int64_t> ids) const {
    ids.erase(std::find(ids.begin(), ids.end(), tokenizer_->end()), ids.end());
    std::erase_if(ids, [&](int64_t id) { return id >= tokenizer_->size(); });  // rows that fill up
    std::string text = tokenizer_->decode(ids);
    if (options_.style == DialogueStyle::plain) return text.substr(0, text.find('\n'));
    const DialogueTemplate& form = options_.form;
    if (!form.answer_end.empty()) text = text.substr(0, text.find(form.answer_end));
    if (text.starts_with(form.answer_begin)) text = text.substr(form.answer_begin.size());
    return text;
  }

  const SampleSource source_;
  const std::string out_;
  const int64_t count_;
  DialogueOptions options_;
  const models::LlavaOptions model_;
  std::filesystem::path folder_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::vector<Dialogue> questions_;
  std::vector<Spread> prompts_;
};

}  // namespace

SampleUsage questions_usage() {
  return {.arguments = {{"ask", std::string()},
                        {"tokens", int64_t{}, "[1, 65536]"},
                        {"tokenizer", std::string()},
                        {"pictures", std::string()}},
          .value = "QUESTIONS",
          .example = "questions.json",
          .purpose = "for LLaVA",
          .samples = "answers to questions",
          .model = "LLaVA",
          .none_of_others = ", which answers questions alone",
          .out = "FILE",
          .example_out = "answers.json",
          .endings = {".json"},
          .help = "  --ask QUESTIONS       LLaVA's dialogues;  --tokens N  --pictures  --tokenizer\n"};
}

std::unique_ptr<Drawing> draw_answers(FileSystem& files, const SampleSource& source,
                                      const SampleArguments& arguments) {
  return std::make_unique<Answers>(files, source, arguments);
}

}  // namespace dtk::llava
