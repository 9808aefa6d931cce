#include <dtk/policies/collectives.h>

#include <algorithm>
#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "shard/flat_parts.h"

namespace dtk::policies {
namespace {

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

Traffic traffic_of(const at::Tensor& values, int64_t elements, int64_t messages) {
  return {elements * static_cast<int64_t>(values.element_size()), messages};
}

}  // namespace

std::string collective_cause(const std::exception& error) {
  std::string text = error.what();
  text.resize(std::min(text.find('\n'), text.size()));
  if (text.starts_with('[') && text.find("] ") != text.npos) text.erase(0, text.find("] ") + 2);
  text.resize(std::min(text.find(". This is typically caused"), text.size()));
  if (text.ends_with('.')) text.pop_back();
  return text;
}

void free_now(at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const at::Device device = tensor.device();
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, device));
  tensor.reset();
}

Collectives::Collectives(c10::intrusive_ptr<c10d::Backend> group)
    : group_(std::move(group)), rank_(group_->getRank()), ranks_(group_->getSize()) {}

Collectives::~Collectives() = default;

// Begins collectives and waits for them.
template <class Begin>
void Collectives::finish(const char* what, const Begin& begin) {
  const auto begun = std::chrono::steady_clock::now();
  try {
    Works works;
    begin(works);
    for (const auto& work : works) work->wait();
  } catch (const std::exception& error) {
    has_failed_ = true;
    throw CollectiveError(std::string(what) + ": " + collective_cause(error));
  }
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

void Collectives::count(const TrafficByCollective& more) {
  for (const auto& [collective, traffic] : more) sent_[collective] += traffic;
}

Collectives::Pending Collectives::begin_all_to_all(at::Tensor& into, at::Tensor& from,
                                                   std::vector<int64_t> taken, std::vector<int64_t> given,
                                                   const char* what) {
  Traffic sent;
  for (int64_t to = 0; to < ranks_; ++to) {
    const int64_t elements = given[static_cast<size_t>(to)];
    if (to != rank_ && elements > 0) sent += traffic_of(from, elements, 1);
  }
  Pending pending;
  finish(what, [&](Works&) { pending = group_->alltoall_base(into, from, taken, given); });
  if (sent.messages > 0) count({{"alltoall", sent}});
  return pending;
}

void Collectives::wait_for(Pending& pending, const char* what) {
  finish(what, [&](Works& works) { works.push_back(std::move(pending)); });
}

// The backends' all-gather into one tensor copies it; broadcasts of slices do not.
std::vector<Collectives::Pending> Collectives::begin_share_parts(const at::Tensor& all,
                                                                 const std::vector<int64_t>& ends,
                                                                 const char* what) {
  Traffic sent;
  Works begun;
  finish(what, [&](Works&) {
    int64_t begin = 0;
    for (int64_t from = 0; from < ranks_; ++from) {
      const int64_t elements = ends[static_cast<size_t>(from)] - begin;
      if (elements > 0) {
        std::vector<at::Tensor> part{part_of_flat(all, begin, elements)};
        c10d::BroadcastOptions options;
        options.rootRank = from;
        begun.push_back(group_->broadcast(part, options));
        if (from == rank_) sent = traffic_of(all, elements * (ranks_ - 1), ranks_ - 1);
      }
      begin += elements;
    }
  });
  if (sent.messages > 0) count({{"broadcast", sent}});
  return begun;
}

void Collectives::share_parts(const at::Tensor& all, const std::vector<int64_t>& ends, const char* what) {
  for (Pending& pending : begin_share_parts(all, ends, what)) wait_for(pending, what);
}

void Collectives::add_up(at::Tensor& values, const char* what) {
  finish(what, [&](Works& works) {
    std::vector<at::Tensor> all{values};
    works.push_back(group_->allreduce(all));
  });
  Traffic sent = traffic_of(values, 2 * values.numel() * (ranks_ - 1), 2 * (ranks_ - 1));
  sent.bytes /= ranks_;
  count({{"allreduce", sent}});
}

void Collectives::send(const at::Tensor& values, int64_t to, const char* what) {
  finish(what, [&](Works& works) {
    std::vector<at::Tensor> one{values};
    works.push_back(group_->send(one, static_cast<int>(to), /*tag=*/0));
  });
  count({{"send", traffic_of(values, values.numel(), 1)}});
}

void Collectives::receive(at::Tensor& values, int64_t from, const char* what) {
  finish(what, [&](Works& works) {
    std::vector<at::Tensor> one{values};
    works.push_back(group_->recv(one, static_cast<int>(from), /*tag=*/0));
  });
}

}  // namespace dtk::policies
