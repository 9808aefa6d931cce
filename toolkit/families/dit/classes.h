// Classes by name, number and range, as dit-sample --classes and sample.classes name them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dtk::dit {

/// What a text names: "cat,dog,0-4", or "all". A class whose name is a number is meant before the class of
/// that number; one that is called as a range is, or "all", can only be named by its number.
class ClassChoice {
 public:
  /// The first `count` of the model's classes, whatever they are called.
  explicit ClassChoice(int64_t count) : classes_(count), parts_{{.text = "", .first = 0, .count = count}} {}
  /// `classes`: of the model. Throws std::invalid_argument for an empty entry.
  ClassChoice(const std::string& text, int64_t classes);

  /// How many it names, with repetitions; does not need names.
  int64_t count() const;
  /// In the order of the text. `names`: by label; empty where the data have none. Throws
  /// std::invalid_argument, which says what is wrong and what is allowed, for a name that is not among them,
  /// and for a number beyond the model's classes.
  std::vector<int64_t> labels(const std::vector<std::string>& names) const;

 private:
  struct Part {
    std::string text;
    int64_t first = 0, count = 1;
    bool is_name = false;      // nothing else
    bool may_be_name = false;  // a number that a class may be called by
  };
  int64_t classes_;
  std::vector<Part> parts_;
};

}  // namespace dtk::dit
