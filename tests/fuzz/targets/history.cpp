#include "toolkit/report/history.h"

#include "fuzz/target.h"

namespace dtk::fuzz {
namespace {

void read_history(std::string_view input) {
  RunHistory history{std::string(input)};
  history.add(input.substr(0, input.find('\n')));
}

}  // namespace

const Target history = {read_history, linear<256, 256>};

}  // namespace dtk::fuzz
