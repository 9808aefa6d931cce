// What a Python pickle says, as plain data. Nothing is executed, imported or constructed: a call stays a
// record of what would be called with what, for the reader of the result to understand or leave alone.
//
// Protocols 2 to 5, as torch.save writes them. Values refer to each other by index, so a value that holds
// itself, or a million values in each other, cost what they take in the file and no recursion.
//
// Written by hand because torch::jit::Unpickler gives an OrderedDict back as None and fails at a file with an
// fp8 tensor without naming it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtk {

/// Index of a value in Pickle::values.
using PickleRef = uint32_t;

struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,      // integer: 0 or 1
    integer,      // of at most 64 bits
    big_integer,  // a wider one; its value is not kept
    real,
    text,
    bytes,       // its content is in `text`
    tuple,       // items
    list,        // items
    set,         // items; also a frozen one
    dict,        // items: key, value, key, value ...
    global,      // text: "module.name" of a class or function
    call,        // of `callee` with `arguments`; items: what was put into the result, as in a list or a dict
    persistent,  // items: the identifier; what torch.save keeps outside of the pickle
    other        // not looked into, such as an out-of-band buffer
  };
  Kind kind = Kind::none;
  PickleRef callee = 0, arguments = 0;
  int64_t integer = 0;
  double real = 0;
  std::string text = {};
  std::vector<PickleRef> items = {};
};

struct Pickle {
  std::vector<PickleValue> values;
  PickleRef root = 0;
  const PickleValue& at(PickleRef ref) const { return values.at(ref); }
};

/// Reads one pickle to its end; memory is at most 300 bytes for each of its bytes, and 4 MiB. Throws
/// FileError
/// "<subject>, byte N: ..." for one that is cut off or damaged, that holds more than a million values, a name
/// of more than 1 KiB or 4 MiB of names, or an instruction of protocols 0 and 1 that torch.save never writes.
Pickle read_pickle(std::string_view bytes, const std::string& subject);

}  // namespace dtk
