#include "toolkit/io/pickle.h"

#include <bit>
#include <unordered_map>
#include <utility>

#include "toolkit/core/errors.h"
#include "toolkit/core/format.h"
#include "toolkit/io/advice.h"
#include "toolkit/io/endian.h"
#include "toolkit/io/pickle_ops.h"

namespace dtk {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t max_values = 1'000'000;     // twenty times what the largest DiT takes with its optimizer
constexpr size_t max_name_bytes = 1024;      // of a class or function, as Python's own have a few dozen
constexpr size_t max_names_bytes = 4 << 20;  // of all together: 20,000 names of 200 bytes
constexpr PickleRef mark = UINT32_MAX;       // on the stack: where a sequence begins

class Machine {
 public:
  Machine(std::string_view bytes, const std::string& subject) : bytes_(bytes), subject_(subject) {}

  Pickle run() {
    while (true) {
      op_at_ = at_;
      const auto op = static_cast<uint8_t>(number<1>());
      if (op == op_stop) break;
      // Each of these takes its own kind of instruction and returns false for any other.
      if (!simple_value(op) && !string_value(op) && !memory(op) && !sequence(op) && !object(op) &&
          !framing(op)) {
        fail(fmt::format("instruction {} is not one that torch.save writes", op));
      }
    }
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}, byte {}: {}{}", subject_, op_at_, what, write_torch_file_again));
  }

  // ---- input ----

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("the pickle ends within an instruction");
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }

  template <size_t Bytes>
  uint64_t number() {
    return little_endian<Bytes>(take(Bytes).data());
  }

  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == bytes_.npos) fail("the pickle ends within an instruction");
    const std::string_view text = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  // ---- stack ----

  /// True, as all that take an instruction.
  bool push(PickleValue value) {
    if (pickle_.values.size() == max_values)
      fail(fmt::format("the pickle holds more than {} values", max_values));
    pickle_.values.push_back(std::move(value));
    stack_.push_back(static_cast<PickleRef>(pickle_.values.size() - 1));
    return true;
  }
  bool push_kind(Kind kind, std::vector<PickleRef> items = {}) {
    return push({.kind = kind, .items = std::move(items)});
  }
  bool push_integer(Kind kind, int64_t integer) { return push({.kind = kind, .integer = integer}); }
  bool push_text(Kind kind, std::string_view text) { return push({.kind = kind, .text = std::string(text)}); }

  PickleRef top() {
    if (stack_.empty() || stack_.back() == mark) fail("a value is missing");
    return stack_.back();
  }
  PickleRef pop() {
    const PickleRef ref = top();
    stack_.pop_back();
    return ref;
  }
  std::vector<PickleRef> pop_to_mark() {
    size_t begin = stack_.size();
    while (begin > 0 && stack_[begin - 1] != mark) --begin;
    if (begin == 0) fail("the beginning of a sequence is missing");
    const std::vector<PickleRef> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return items;
  }
  std::vector<PickleRef> pop_some(size_t count) {
    std::vector<PickleRef> items(count);
    for (size_t i = count; i > 0; --i) items[i - 1] = pop();
    return items;
  }

  /// Adds to the list, set, dict or object that is now on top.
  bool put(const std::vector<PickleRef>& items, bool pairs) {
    PickleValue& target = pickle_.values[top()];
    const bool holds_pairs = target.kind == Kind::dict || target.kind == Kind::call;
    const bool holds_values =
        target.kind == Kind::list || target.kind == Kind::set || target.kind == Kind::call;
    if (!(pairs ? holds_pairs : holds_values)) fail("items are put into a value that has none");
    if (pairs && items.size() % 2 != 0) fail("a key has no value");
    target.items.insert(target.items.end(), items.begin(), items.end());
    return true;
  }

  // ---- instructions ----

  bool simple_value(uint8_t op) {
    switch (op) {
      case op_none:
        return push_kind(Kind::none);
      case op_newtrue:
        return push_integer(Kind::boolean, 1);
      case op_newfalse:
        return push_integer(Kind::boolean, 0);
      case op_binint:
        return push_integer(Kind::integer, static_cast<int32_t>(number<4>()));
      case op_binint1:
        return push_integer(Kind::integer, static_cast<int64_t>(number<1>()));
      case op_binint2:
        return push_integer(Kind::integer, static_cast<int64_t>(number<2>()));
      case op_long1:
        return push_long(take(number<1>()));
      case op_long4:
        return push_long(take(number<4>()));
      case op_binfloat:
        return push({.kind = Kind::real, .real = std::bit_cast<double>(big_endian(take(sizeof(double))))});
      default:
        return false;
    }
  }

  /// Two's complement, little-endian, of any length.
  bool push_long(std::string_view bytes) {
    if (bytes.size() > sizeof(int64_t)) return push_kind(Kind::big_integer);
    uint64_t value = little_endian(bytes);
    const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80) != 0;
    if (negative && bytes.size() < sizeof value) value |= ~uint64_t{0} << (8 * bytes.size());
    return push_integer(Kind::integer, static_cast<int64_t>(value));
  }

  bool string_value(uint8_t op) {
    switch (op) {
      case op_short_binunicode:
        return push_text(Kind::text, take(number<1>()));
      case op_binunicode:
        return push_text(Kind::text, take(number<4>()));
      case op_binunicode8:
        return push_text(Kind::text, take(number<8>()));
      case op_short_binbytes:
      case op_short_binstring:
        return push_text(Kind::bytes, take(number<1>()));
      case op_binbytes:
      case op_binstring:
        return push_text(Kind::bytes, take(number<4>()));
      case op_binbytes8:
      case op_bytearray8:
        return push_text(Kind::bytes, take(number<8>()));
      default:
        return false;
    }
  }

  bool memory(uint8_t op) {
    switch (op) {
      case op_binput:
        return store(number<1>());
      case op_long_binput:
        return store(number<4>());
      case op_memoize:
        return store(memo_.size());
      case op_binget:
        return recall(number<1>());
      case op_long_binget:
        return recall(number<4>());
      case op_dup:
        stack_.push_back(top());
        return true;
      case op_pop:
        if (stack_.empty()) fail("a value is missing");
        stack_.pop_back();
        return true;
      case op_pop_mark:
        pop_to_mark();
        return true;
      case op_mark:
        stack_.push_back(mark);
        return true;
      default:
        return false;
    }
  }

  bool store(uint64_t index) {
    if (memo_.size() == max_values) fail(fmt::format("the pickle stores more than {} values", max_values));
    memo_[index] = top();
    return true;
  }

  bool recall(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("a value is recalled that was never stored");
    stack_.push_back(found->second);
    return true;
  }

  bool sequence(uint8_t op) {
    switch (op) {
      case op_empty_tuple:
        return push_kind(Kind::tuple);
      case op_empty_list:
        return push_kind(Kind::list);
      case op_empty_dict:
        return push_kind(Kind::dict);
      case op_empty_set:
        return push_kind(Kind::set);
      case op_tuple1:
        return push_kind(Kind::tuple, pop_some(1));
      case op_tuple2:
        return push_kind(Kind::tuple, pop_some(2));
      case op_tuple3:
        return push_kind(Kind::tuple, pop_some(3));
      case op_tuple:
        return push_kind(Kind::tuple, pop_to_mark());
      case op_list:
        return push_kind(Kind::list, pop_to_mark());
      case op_frozenset:
        return push_kind(Kind::set, pop_to_mark());
      case op_dict:
        return push_dict(pop_to_mark());
      case op_append:
        return put(pop_some(1), false);
      case op_appends:
      case op_additems:
        return put(pop_to_mark(), false);
      case op_setitem:
        return put(pop_some(2), true);
      case op_setitems:
        return put(pop_to_mark(), true);
      default:
        return false;
    }
  }

  bool push_dict(const std::vector<PickleRef>& items) {
    push_kind(Kind::dict);
    return put(items, true);
  }

  bool object(uint8_t op) {
    switch (op) {
      case op_global: {
        const std::string_view module = line();
        return push_name(module, line());
      }
      case op_stack_global:
        return push_stack_global();
      case op_newobj:
      case op_reduce:
        return push_call(pop_some(2));
      case op_newobj_ex:
        return push_call(pop_some(3));  // the last: arguments by name
      case op_build:                    // the state of an object; of what is read here none is needed
        pop();
        top();
        return true;
      case op_binpersid:
        return push_kind(Kind::persistent, pop_some(1));
      default:
        return false;
    }
  }

  bool push_stack_global() {
    const std::vector<PickleRef> parts = pop_some(2);
    const PickleValue& module = pickle_.values[parts[0]];
    const PickleValue& name = pickle_.values[parts[1]];
    if (module.kind != Kind::text || name.kind != Kind::text) fail("the name of a class is not a text");
    return push_name(module.text, name.text);
  }

  /// Texts cost what they take in the file, but a name may be made of texts that were stored once.
  bool push_name(std::string_view module, std::string_view name) {
    const size_t bytes = module.size() + 1 + name.size();
    if (bytes > max_name_bytes)
      fail(fmt::format("the name of a class has {} bytes; at most {} are read", bytes, max_name_bytes));
    names_bytes_ += bytes;
    if (names_bytes_ > max_names_bytes)
      fail(fmt::format("the names of classes take more than {} bytes", max_names_bytes));
    return push_text(Kind::global, std::string(module) + "." + std::string(name));
  }

  bool push_call(const std::vector<PickleRef>& parts) {
    return push({.kind = Kind::call, .callee = parts[0], .arguments = parts[1]});
  }

  bool framing(uint8_t op) {
    switch (op) {
      case op_proto: {
        const uint64_t version = number<1>();
        if (version < 2 || version > 5)
          fail(fmt::format("pickle protocol {}; protocols 2 to 5 are read", version));
        return true;
      }
      case op_frame:
        number<8>();
        return true;  // how much to read at once
      case op_next_buffer:
        return push_kind(Kind::other);
      case op_readonly_buffer:
        top();
        return true;
      default:
        return false;
    }
  }

  const std::string_view bytes_;
  const std::string& subject_;
  size_t at_ = 0, op_at_ = 0, names_bytes_ = 0;
  Pickle pickle_;
  std::vector<PickleRef> stack_;
  std::unordered_map<uint64_t, PickleRef> memo_;
};

}  // namespace

Pickle read_pickle(std::string_view bytes, const std::string& subject) {
  return Machine(bytes, subject).run();
}

}  // namespace dtk
