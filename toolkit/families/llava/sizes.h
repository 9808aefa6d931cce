// How large samples are, free of LibTorch.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace dtk::llava {

/// How large a sample is, known before it is read.
struct SampleSize {
  int64_t tokens = 0;    // with the pictures', after it was cut
  int64_t pictures = 0;  // M of it
  int64_t features = 0;  // of the pictures' tokens those that are left, K of it
  int64_t labels = 0;    // rows that carry one, L of it
  friend bool operator==(const SampleSize&, const SampleSize&) = default;
};

/// What all of them have together; `tokens` are the longest's, which a batch is filled up to.
inline SampleSize totals_of(const std::vector<SampleSize>& samples) {
  SampleSize all;
  for (const SampleSize& one : samples) {
    all.tokens = std::max(all.tokens, one.tokens);
    all.pictures += one.pictures;
    all.features += one.features;
    all.labels += one.labels;
  }
  return all;
}

/// DataSource::length(): text alone is of another kind than what has pictures.
inline int64_t length_among(const SampleSize& size) {
  return size.pictures > 0 ? size.tokens : -size.tokens;
}

/// Of the samples that a plan is made for, in the order of their sources, and how long the run will be: the
/// plan's own job is shorter.
struct Lengths {
  std::vector<SampleSize> training = {}, held_out = {};
  std::optional<int64_t> steps = {}, epochs = {};
};

/// They are no part of what a configuration says: two with other ones are alike.
struct MeasuredLengths {
  std::shared_ptr<const Lengths> of = nullptr;  // null: the data are not there
  friend bool operator==(const MeasuredLengths&, const MeasuredLengths&) { return true; }
};

}  // namespace dtk::llava
