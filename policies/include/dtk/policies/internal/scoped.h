// What guards and scopes are made of.
#pragma once
#include <utility>

namespace dtk::policies {

/// Base of what undoes something at its end, and so is neither copied nor moved.
class NotCopied {
 public:
  NotCopied(const NotCopied&) = delete;
  NotCopied& operator=(const NotCopied&) = delete;

 protected:
  NotCopied() = default;
  ~NotCopied() = default;
};

/// While alive, `variable` has this value; then again what it had before.
template <class T>
class ScopedValue : NotCopied {
 public:
  [[nodiscard]] ScopedValue(T& variable, T value)
      : variable_(variable), before_(std::exchange(variable, std::move(value))) {}
  ~ScopedValue() { variable_ = std::move(before_); }

 private:
  T& variable_;
  T before_;
};

}  // namespace dtk::policies
