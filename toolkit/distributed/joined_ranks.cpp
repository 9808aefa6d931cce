#include "toolkit/distributed/joined_ranks.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Logging.h>
#include <dtk/policies/collectives.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "toolkit/config/toml_text.h"
#include "toolkit/core/format.h"
#include "toolkit/core/text.h"
#include "toolkit/distributed/listener.h"
#include "toolkit/distributed/nccl_group.h"

namespace dtk {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

constexpr milliseconds kBetweenLooks{20};
constexpr milliseconds kForLastWords{500};  // left before connections break: what is late is the store
constexpr milliseconds kForLateOnes{300};
constexpr milliseconds kForAnswers{2000};
constexpr milliseconds kBetweenSigns{250};
constexpr milliseconds kBetweenTries{100};
constexpr milliseconds kSilent{10000};  // then who waits says for whom
// Keys of the store.
constexpr char kLastWord[] = "last word", kHeard[] = "heard", kEnded[] = "dit-train/ended";

Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "a host without a name";
}

// "3\nrank 1 on node07: ..."
std::string word_text(const LastWord& word) {
  return fmt::format("{}\n{}", static_cast<int>(word.code), word.text);
}

LastWord word_of(const std::string& text) {
  const size_t line = text.find('\n');
  return {static_cast<ExitCode>(std::stoi(text.substr(0, line))),
          line == text.npos ? "" : text.substr(line + 1)};
}

Error not_answering(const std::string& who, const std::string& what, const std::exception& error) {
  return Error(ExitCode::ranks, fmt::format("{}: {}: {}", who, what, policies::collective_cause(error)));
}

std::string sign_of(int64_t rank) {
  return fmt::format("sign/{}", rank);
}

std::string sign_at_end(int64_t rank) {
  return fmt::format("end/{}", rank);
}

// What is known of the end of a job.
struct Heard {
  std::optional<LastWord> word = {};
  std::vector<std::string> silent = {};  // ranks
};

// Signs of life of one rank, as another sees them.
class Signs {
 public:
  Signs(c10d::Store& store, int64_t rank) : store_(store), rank_(rank) {}
  int64_t rank() const { return rank_; }
  // Since the last one that was seen, or the first look.
  std::chrono::steady_clock::duration silent() {
    const auto now = std::chrono::steady_clock::now();
    const int64_t count = store_.add(sign_of(rank_), 0);
    if (count != seen_) since_ = now;
    seen_ = count;
    return now - since_;
  }

 private:
  c10d::Store& store_;
  const int64_t rank_;
  int64_t seen_ = -1;
  std::chrono::steady_clock::time_point since_ = {};
};

// Whether a second start of the same ranks would end as the first did.
bool is_final(ExitCode code) {
  return code == ExitCode::configuration || code == ExitCode::memory || code == ExitCode::data;
}

class RanksByStore final : public JoinedRanks {
 public:
  RanksByStore(const Launch& launch, const DistributedOptions& options, const SayWaiting& say)
      : launch_(launch),
        timeout_(static_cast<int64_t>(options.timeout * 1000)),
        name_(fmt::format("rank {} on {}", launch.rank, host_name())) {
    open_store(say);
    come(say);
    give_signs();
    open_group(options.interface);
  }

  int64_t rank() const override { return launch_.rank; }
  int64_t size() const override { return launch_.ranks; }
  std::string name() const override { return name_; }
  c10::intrusive_ptr<c10d::Backend> group() const override { return group_; }

  void take_device(c10::Device device, const std::string& nccl) override {
    if (!device.is_cuda()) return;
    const auto store = c10::make_intrusive<c10d::PrefixStore>("nccl", store_);
    group_ = open_nccl_group(nccl, store, launch_.rank, launch_.ranks, timeout_);
    try {
      // Once for all, not for each pair of ranks that meet.
      group_->setBoundDeviceId(device);
      group_->eagerConnectSingleDevice(device);
    } catch (const std::exception& error) {
      throw not_answering(name_, "no connection to another rank's GPU", error);
    }
  }

  std::vector<std::vector<double>> all_say(const std::vector<double>& own, const char* when) override {
    *gives_signs_ = false;  // from now on the group notices
    const auto count = own.size(), ranks = static_cast<size_t>(launch_.ranks);
    std::vector<double> all(ranks * count + 1, 0.0);  // one more: nothing said is a word too
    std::copy(own.begin(), own.end(), all.begin() + launch_.rank * static_cast<std::ptrdiff_t>(count));
    try {
      std::vector<at::Tensor> view{
          at::from_blob(all.data(), {static_cast<int64_t>(all.size())}, at::kDouble)};
      control_->allreduce(view)->wait();
      // Work of NCCL that failed is told by nothing else: who waits for it waits on the device.
      if (group_->getError() != c10d::ErrorType::SUCCESS)
        throw std::runtime_error("NCCL has failed, or taken longer than distributed.timeout");
    } catch (const std::exception& error) {
      throw policies::CollectiveError(fmt::format("{}: {}", when, policies::collective_cause(error)));
    }
    std::vector<std::vector<double>> said;
    for (auto first = all.begin(); said.size() < ranks; first += static_cast<std::ptrdiff_t>(count))
      said.emplace_back(first, first + static_cast<std::ptrdiff_t>(count));
    return said;
  }

  void join(const at::Tensor& values, const char* when) override try {
    std::vector<at::Tensor> bits{
        values.view(at::kInt)};  // added: a sum of floats would lose the sign of zero
    control_->allreduce(bits)->wait();
  } catch (const std::exception& error) {
    throw policies::CollectiveError(fmt::format("{}: {}", when, policies::collective_cause(error)));
  }

  std::string leader_says(const std::string& name, const std::string& text) override try {
    const std::string key = "leader/" + name;
    if (leads()) {
      store_->set(key, bytes_of(text));
      return text;
    }
    // Planning and measuring take the leader as long as they take.
    wait_until([&] { return store_->check({key}); });
    return text_of(store_->get(key));
  } catch (const policies::CollectiveError&) {
    throw;
  } catch (const std::exception& error) {
    throw policies::CollectiveError("before the first step: " + policies::collective_cause(error));
  }

  void meet(const std::string& name) override try {
    const std::string all = "met/" + name + "/all";
    if (store_->add("met/" + name, 1) == launch_.ranks) store_->set(all, bytes_of("met"));
    wait_until([&] { return store_->check({all}); });
  } catch (const policies::CollectiveError&) {
    throw;
  } catch (const std::exception& error) {
    throw policies::CollectiveError(fmt::format("before {}: {}", name, policies::collective_cause(error)));
  }

  bool leave_word(const LastWord& word) override {
    const auto is_first = in_time<bool>([this, word] {
      const Bytes own = bytes_of(word_text(word));
      const bool first = store_->compareSet(kLastWord, {}, own) == own;
      if (first && launch_.launcher_serves && is_final(word.code)) base_->set(kEnded, own);
      return first;
    });
    has_reason_ = true;
    let_group_go();
    return is_first.value_or(true);
  }

  std::optional<LastWord> last_word() override {
    const auto was_reached = std::make_shared<std::atomic<bool>>(false);
    const auto heard = in_time<Heard>([this, was_reached]() -> Heard {
      store_->add(sign_at_end(launch_.rank), 1);
      *was_reached = true;
      for (milliseconds waited{0}; waited < kForLastWords; waited += kBetweenLooks) {
        if (store_->check({kLastWord})) return {.word = word_of(text_of(store_->get(kLastWord)))};
        std::this_thread::sleep_for(kBetweenLooks);
      }
      Heard of;
      for (int64_t rank = 0; rank < launch_.ranks; ++rank)
        if (!store_->check({sign_at_end(rank)})) of.silent.push_back(std::to_string(rank));
      return of;
    });
    if (heard) {
      silent_ = heard->silent;
    } else if (!*was_reached && !launch_.launcher_serves && !leads()) {
      silent_ = {"0"};  // whose store it was
    }
    has_reason_ = heard && heard->word;
    let_group_go();
    return heard ? heard->word : std::nullopt;
  }

  std::string silent_ranks() const override { return silent_.empty() ? "" : first_few(silent_, 5); }

  void part() override {
    const auto heard = in_time<int64_t>([this] { return store_->add(kHeard, 1); });
    if (!serves() || !heard) return;
    // Who notices late else takes this rank for the one that died.
    if (!has_reason_) return std::this_thread::sleep_for(kForLateOnes);
    try {
      for (milliseconds waited{0}; waited < timeout_ && store_->add(kHeard, 0) < launch_.ranks;
           waited += kBetweenLooks)
        std::this_thread::sleep_for(kBetweenLooks);
    } catch (const std::exception&) {  // the store is this process's own
    }
  }

 private:
  bool serves() const { return leads() && !launch_.launcher_serves; }
  std::string place() const { return fmt::format("{}:{}", launch_.address, launch_.port); }

  double timeout_in_seconds() const { return static_cast<double>(timeout_.count()) / 1000; }

  // Not by c10d, whose tries to connect go on for several times as long as they may.
  void wait_for_leader(const SayWaiting& say) const {
    const auto begin = std::chrono::steady_clock::now();
    for (bool said = false;; std::this_thread::sleep_for(kBetweenTries)) {
      const std::string problem = connection_problem(launch_.address, launch_.port);
      if (problem.empty()) return;
      const auto waited = std::chrono::steady_clock::now() - begin;
      if (waited >= timeout_) {
        throw Error(
            ExitCode::ranks,
            fmt::format("{}: nobody answers at {}, where MASTER_ADDR and MASTER_PORT say that rank 0 is; "
                        "start it, or set them (distributed.timeout = {} s): {}",
                        name_, place(), timeout_in_seconds(), problem));
      }
      if (said || waited < kSilent) continue;
      said = true;
      say(fmt::format("{} waits for rank 0 at {} (MASTER_ADDR, MASTER_PORT), {} s at most", name_, place(),
                      timeout_in_seconds()));
    }
  }

  void open_store(const SayWaiting& say) {
    if (!serves()) wait_for_leader(say);
    c10d::TCPStoreOptions options;
    options.isServer = serves();
    options.port = static_cast<uint16_t>(launch_.port);
    options.waitWorkers = false;
    options.timeout = timeout_;
    try {
      base_ = c10::make_intrusive<c10d::TCPStore>(launch_.address, options);
    } catch (const std::exception& error) {
      if (serves()) {
        throw ConfigError(fmt::format(
            "{}: cannot serve at {}: {}; MASTER_ADDR must be this host, and MASTER_PORT a port of it "
            "that no other job has",
            name_, place(), policies::collective_cause(error)));
      }
      throw not_answering(name_, "no connection to rank 0 at " + place(), error);
    }
    if (launch_.launcher_serves && launch_.attempt != "0" && base_->check({kEnded})) {
      const LastWord word = word_of(text_of(base_->get(kEnded)));
      throw Error(word.code, "another start would end as the one before: " + word.text);
    }
    store_ = c10::make_intrusive<c10d::PrefixStore>("dit-train/" + launch_.attempt, base_);
  }

  // Planning, measuring and reading take a rank as long as they take, and the store does not tell that it
  // died meanwhile.
  void give_signs() {
    std::thread([store = store_, goes_on = gives_signs_, sign = sign_of(launch_.rank)] {
      try {
        for (; *goes_on; std::this_thread::sleep_for(kBetweenSigns)) store->add(sign, 1);
      } catch (const std::exception&) {  // whoever serves the store is gone, as the others see, too
      }
    }).detach();
  }

  // Until `is_true`, or false once `is_enough` of the time waited. Throws where a rank has failed.
  template <class Condition, class Enough>
  bool comes_true(const Condition& is_true, const Enough& is_enough) {
    for (milliseconds waited{0}; !is_true(); waited += kBetweenLooks) {
      if (store_->check({kLastWord})) throw policies::CollectiveError("it has failed");
      if (is_enough(waited)) return false;
      std::this_thread::sleep_for(kBetweenLooks);
    }
    return true;
  }

  // Until `is_true`, however long that takes; throws where a rank gives no sign of life for the timeout: the
  // leader looks at all, the others at the leader.
  template <class Condition>
  void wait_until(const Condition& is_true) {
    std::vector<Signs> watched;
    for (int64_t rank = 0; rank < (leads() ? launch_.ranks : 1); ++rank)
      if (rank != launch_.rank) watched.emplace_back(*store_, rank);
    comes_true(is_true, [&](milliseconds waited) {
      if (waited % kBetweenSigns >= kBetweenLooks) return false;
      for (Signs& signs : watched) {
        if (signs.silent() < timeout_) continue;
        throw policies::CollectiveError(
            fmt::format("rank {} has given no sign of life for {} s", signs.rank(), timeout_in_seconds()));
      }
      return false;
    });
  }

  void come(const SayWaiting& say) try {
    const auto key = [](int64_t rank) { return fmt::format("came/{}", rank); };
    if (store_->add(key(launch_.rank), 1) > 1) {
      throw ConfigError(
          fmt::format("{}: another process says that it is rank {}, too; each has a rank of its own, from "
                      "0 to {}, and each job a port of its own",
                      name_, launch_.rank, launch_.ranks - 1));
    }
    if (store_->add("come", 1) == launch_.ranks) store_->set("all came", bytes_of("all"));
    const auto missing = [&] {
      std::vector<std::string> ranks;
      for (int64_t rank = 0; rank < launch_.ranks; ++rank)
        if (!store_->check({key(rank)})) ranks.push_back(std::to_string(rank));
      return fmt::format("of {} ranks {}", launch_.ranks, first_few(ranks, 5));
    };
    bool said = !leads();
    const auto is_enough = [&](milliseconds waited) {
      if (!said && waited >= kSilent) {
        say(fmt::format("{} waits: {} did not come to {} yet, {} s at most", name_, missing(), place(),
                        timeout_in_seconds()));
        said = true;
      }
      return waited >= timeout_;
    };
    if (comes_true([&] { return store_->check({"all came"}); }, is_enough)) return;
    throw Error(ExitCode::ranks, fmt::format("{}: {} did not come to {} within {} s", name_, missing(),
                                             place(), timeout_in_seconds()));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw not_answering(name_, "rank 0 does not answer", error);
  }

  void open_group(const std::string& interface) {
    auto options = c10d::ProcessGroupGloo::Options::create_default(timeout_);
    try {
      options->devices = {interface.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                                            : c10d::ProcessGroupGloo::createDeviceForInterface(interface)};
    } catch (const std::exception& error) {
      throw ConfigError(
          fmt::format("distributed.interface = {}: {} has no such network interface with an address: {}",
                      toml_text(interface), name_, first_line(error.what())));
    }
    try {
      const auto opened = [&](const char* name) {
        return c10::make_intrusive<c10d::ProcessGroupGloo>(
            c10::make_intrusive<c10d::PrefixStore>(name, store_), static_cast<int>(launch_.rank),
            static_cast<int>(launch_.ranks), options);
      };
      control_ = opened("control");
      // Each runs one collective at a time; with two of them, weights that come from both of two ranks left a
      // third of a slow link idle.
      options->threads = 8;
      group_ = opened("tensors");
    } catch (const std::exception& error) {
      throw not_answering(name_, "no connection to another rank", error);
    }
  }

  // What `ask` gives, or nothing where the store fails or does not answer in time: over a link that was cut
  // it would not for minutes. The thread that waits for it ends with the process.
  template <class T>
  static std::optional<T> in_time(std::function<T()> ask) {
    auto answer = std::make_shared<std::promise<std::optional<T>>>();
    std::future<std::optional<T>> answered = answer->get_future();
    std::thread([ask = std::move(ask), answer] {
      try {
        answer->set_value(ask());
      } catch (const std::exception&) {
        answer->set_value(std::nullopt);
      }
    }).detach();
    if (answered.wait_for(kForAnswers) == std::future_status::ready) return answered.get();
    return std::nullopt;
  }

  // By which the others notice. Not waited for: its threads may wait for ranks that wait for this one's,
  // which the process' end ends.
  void let_group_go() {
    if (group_ != nullptr && group_->getBackendName() == "nccl")
      in_time<bool>([group = group_] { return group->abort(), true; });
    for (auto* const group : {&group_, &control_})
      std::thread([one = std::move(*group)]() mutable { one.reset(); }).detach();
  }

  bool has_reason_ = false;  // the store holds one
  std::vector<std::string> silent_;
  const std::shared_ptr<std::atomic<bool>> gives_signs_ = std::make_shared<std::atomic<bool>>(true);
  const Launch launch_;
  const milliseconds timeout_;
  const std::string name_;
  c10::intrusive_ptr<c10d::Store> base_, store_;  // of all starts; of this one
  // What ranks say does not wait for the tensors that are on their way: Gloo's groups are queues.
  c10::intrusive_ptr<c10d::Backend> group_, control_;
};

}  // namespace

JoinedRanks* join_ranks(const Launch& launch, const DistributedOptions& options, const SayWaiting& say) {
  // c10d prints what it also throws, with the frames of its stack.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*replace=*/0);
  // LibTorch's watchdog aborts NCCL's work after an error and leaves the process to us; else it ends it by
  // SIGABRT, without a reason.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*replace=*/0);
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*replace=*/0);
  c10::initLogging();
  return new RanksByStore(launch, options, say);
}

}  // namespace dtk
