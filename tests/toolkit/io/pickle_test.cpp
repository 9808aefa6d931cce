// Pickles as data: what protocols 2 to 5 say, and that nothing in a hostile one runs, overflows or explodes.
#include "toolkit/io/pickle.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "support/files/zip_bytes.h"
#include "toolkit/core/errors.h"

namespace dtk {
namespace {

using Kind = PickleValue::Kind;
using namespace std::string_literals;

using test::write_again;

// pickle.dumps(OrderedDict([("a", (1, -2, 3000, 2**40, -2**63, 2**70)),
//                           ("b", [True, False, None, 1.5, "é", {1, 2}]), ("c", Namespace(lr=1e-4))]),
//                           PROTOCOL)
const std::string numbers =
    "(K\x01J\xfe\xff\xff\xffM\xb8\x0b\x8a\x06\0\0\0\0\0\x01\x8a\x08\0\0\0\0\0\0\0\x80"
    "\x8a\t\0\0\0\0\0\0\0\0@t"s;
const std::string protocol_2 =
    "\x80\x02"
    "ccollections\nOrderedDict\nq\0)Rq\x01(X\x01\0\0\0aq\x02"s +
    numbers +
    "q\x03X\x01\0\0\0bq\x04]q\x05(\x88\x89NG?\xf8\0\0\0\0\0\0X\x02\0\0\0\xc3\xa9q\x06"
    "c__builtin__\nset\nq\x0c]q\r(K\x01K\x02"
    "e\x85q\x0eRq\x0f"
    "eX\x01\0\0\0cq\x14"
    "cargparse\nNamespace\nq\x15)\x81q\x16}q\x17X\x02\0\0\0lrq\x18G?\x1a\x36\xe2\xeb\x1c\x43-sbu."s;
const std::string protocol_4 =
    "\x80\x04\x95\xb1\0\0\0\0\0\0\0\x8c\x0b"
    "collections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94(\x8c\x01"
    "a\x94"s +
    numbers +
    "\x94\x8c\x01"
    "b\x94]\x94(\x88\x89NG?\xf8\0\0\0\0\0\0\x8c\x02\xc3\xa9\x94\x8f\x94(K\x01K\x02\x90"
    "e\x8c\x01"
    "c\x94\x8c\x08"
    "argparse\x94\x8c\tNamespace\x94\x93\x94)\x81\x94}\x94\x8c\x02lr\x94G?\x1a\x36\xe2\xeb\x1c\x43-sbu."s;

std::string pickle_refusal(const std::string& bytes) {
  return test::error_text<FileError>([&] { read_pickle(bytes, "p"); });
}

std::vector<Kind> kinds(const Pickle& pickle, const std::vector<PickleRef>& items) {
  std::vector<Kind> found;
  for (const PickleRef ref : items) found.push_back(pickle.at(ref).kind);
  return found;
}

const PickleValue& root(const Pickle& pickle) {
  return pickle.at(pickle.root);
}

}  // namespace

TEST_CASE("pickle: an OrderedDict with values of all kinds, by protocols 2 and 4") {
  for (const std::string& bytes : {protocol_2, protocol_4}) {
    const Pickle pickle = read_pickle(bytes, "p");
    const PickleValue& dict = root(pickle);
    REQUIRE(dict.kind == Kind::call);
    CHECK(pickle.at(dict.callee).text == "collections.OrderedDict");
    CHECK(pickle.at(dict.arguments).items.empty());
    REQUIRE(kinds(pickle, dict.items) ==
            std::vector<Kind>{Kind::text, Kind::tuple, Kind::text, Kind::list, Kind::text, Kind::call});
    CHECK(pickle.at(dict.items[0]).text == "a");

    const std::vector<PickleRef>& numbers_seen = pickle.at(dict.items[1]).items;
    REQUIRE(numbers_seen.size() == 6);
    std::vector<int64_t> integers;
    for (size_t i = 0; i < 5; ++i) integers.push_back(pickle.at(numbers_seen[i]).integer);
    CHECK(integers == std::vector<int64_t>{1, -2, 3000, int64_t{1} << 40, INT64_MIN});
    CHECK(pickle.at(numbers_seen[5]).kind == Kind::big_integer);

    const std::vector<PickleRef>& list = pickle.at(dict.items[3]).items;
    CHECK(kinds(pickle, {list.begin(), list.end() - 1}) ==
          std::vector<Kind>{Kind::boolean, Kind::boolean, Kind::none, Kind::real, Kind::text});
    CHECK(pickle.at(list[0]).integer == 1);
    CHECK(pickle.at(list[1]).integer == 0);
    CHECK(pickle.at(list[3]).real == 1.5);
    CHECK(pickle.at(list[4]).text == "é");

    const PickleValue& name_space = pickle.at(dict.items[5]);
    CHECK(pickle.at(name_space.callee).text == "argparse.Namespace");
  }
}

TEST_CASE("pickle: a call is recorded and never made") {
  for (const std::string& bytes :
       {"\x80\x02"
        "cos\nsystem\nX\x04\0\0\0true\x85R."s,
        "\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R."s}) {
    const Pickle pickle = read_pickle(bytes, "p");
    REQUIRE(root(pickle).kind == Kind::call);
    CHECK(pickle.at(root(pickle).callee).text == "os.system");
    CHECK(pickle.at(pickle.at(root(pickle).arguments).items[0]).text == "true");
  }
}

TEST_CASE("pickle: one that is cut off anywhere is refused") {
  for (const std::string& bytes : {protocol_2, protocol_4}) {
    for (size_t length = 0; length < bytes.size(); ++length) {
      INFO(length);
      CHECK_THROWS_AS(read_pickle(bytes.substr(0, length), "p"), FileError);
    }
  }
  CHECK(pickle_refusal("\x80\x02X\x04\0\0\0tru"s) ==
        "p, byte 2: the pickle ends within an instruction" + write_again);
}

TEST_CASE("pickle: whatever bit has changed, it is read or refused") {
  int refused = 0;
  for (size_t bit = 0; bit < 8 * protocol_2.size(); ++bit) {
    std::string changed = protocol_2;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    INFO("bit " << bit);
    try {
      const Pickle pickle = read_pickle(changed, "p");
      for (const PickleValue& value : pickle.values) {
        for (const PickleRef item : value.items) CHECK(item < pickle.values.size());
      }
      CHECK(pickle.root < pickle.values.size());
    } catch (const FileError&) {
      ++refused;
    }
  }
  CHECK(refused > 500);
}

TEST_CASE("pickle: lengths beyond the file take no memory") {
  const std::string ends = ": the pickle ends within an instruction";
  const std::string most(8, '\xff');
  for (const char op : "X\x8d\x8e\x96"s + "BT\x8b"s) {
    CHECK(pickle_refusal("\x80\x04"s + op + most + "ab.") == "p, byte 2" + ends + write_again);
  }
  CHECK(pickle_refusal("\x80\x04\x8a\xff.") == "p, byte 2" + ends + write_again);
  CHECK(pickle_refusal("\x80\x02"
                       "cos\nsystem") == "p, byte 2" + ends + write_again);
}

TEST_CASE("pickle: a million values in each other, and one that holds itself") {
  const std::string deep = ")"s + std::string(900'000, '\x85') + ".";
  CHECK(root(read_pickle(deep, "p")).items.size() == 1);
  const Pickle own = read_pickle("]q\0h\0a."s, "p");
  CHECK(root(own).items == std::vector<PickleRef>{own.root});
  CHECK(pickle_refusal(std::string(1'000'001, 'N') + ".") ==
        "p, byte 1000000: the pickle holds more than 1000000 values" + write_again);
}

TEST_CASE("pickle: a list of lists of lists, each ten times, stays as small as its file") {
  std::string bomb = "]q\0"s;
  for (int level = 0; level < 60; ++level) {
    const auto memo = static_cast<char>(level);
    bomb += "0](";
    for (int i = 0; i < 10; ++i) bomb += "h"s + memo;
    bomb += "eq"s + static_cast<char>(level + 1);
  }
  const Pickle pickle = read_pickle(bomb + ".", "p");
  CHECK(pickle.values.size() == 61);
  CHECK(root(pickle).items.size() == 10);
}

TEST_CASE("pickle: a stack or a memo that lacks what is asked for") {
  const std::string missing = ": a value is missing";
  for (const char* bytes : {".", "\x85.", "R.", "NR.", "0.", "2.", "b.", "Nb.", "Q.", "a.", "q\1."}) {
    INFO(bytes);
    CHECK(pickle_refusal(bytes).ends_with(missing + write_again));
  }
  CHECK(pickle_refusal("(.") == "p, byte 1" + missing + write_again);
  CHECK(pickle_refusal("N\x86.") == "p, byte 1" + missing + write_again);
  CHECK(pickle_refusal("Nt.") == "p, byte 1: the beginning of a sequence is missing" + write_again);
  CHECK(pickle_refusal("h\7.") == "p, byte 0: a value is recalled that was never stored" + write_again);
  CHECK(pickle_refusal("NNa.") == "p, byte 2: items are put into a value that has none" + write_again);
  CHECK(pickle_refusal("](NNu.") == "p, byte 4: items are put into a value that has none" + write_again);
  CHECK(pickle_refusal("}(NNe.") == "p, byte 4: items are put into a value that has none" + write_again);
  CHECK(pickle_refusal("}(Nu.") == "p, byte 3: a key has no value" + write_again);
  CHECK(pickle_refusal("NN\x93.") == "p, byte 2: the name of a class is not a text" + write_again);
}

TEST_CASE("pickle: instructions and protocols that are not read") {
  const std::string unknown = " is not one that torch.save writes";
  for (const char op : "iopPgIFLSV\x82\xff"s) {
    const std::string number = std::to_string(static_cast<unsigned char>(op));
    CHECK(pickle_refusal(std::string(1, op) + "1\n1\n.") ==
          "p, byte 0: instruction " + number + unknown + write_again);
  }
  CHECK(pickle_refusal("\x80\x01N.") ==
        "p, byte 0: pickle protocol 1; protocols 2 to 5 are read" + write_again);
  CHECK(pickle_refusal("\x80\x06N.") ==
        "p, byte 0: pickle protocol 6; protocols 2 to 5 are read" + write_again);
}

TEST_CASE("pickle: lists and dicts from marks, buffers and objects by name") {
  const Pickle list = read_pickle("(NNl.", "p");
  CHECK(root(list).kind == Kind::list);
  CHECK(root(list).items.size() == 2);
  const Pickle dict = read_pickle("(NNd.", "p");
  CHECK(root(dict).kind == Kind::dict);
  CHECK(root(dict).items.size() == 2);
  CHECK(root(read_pickle("\x97\x98.", "p")).kind == Kind::other);
  const Pickle object = read_pickle("cm\nC\n)}\x92.", "p");
  CHECK(root(object).kind == Kind::call);
  CHECK(object.at(root(object).callee).text == "m.C");
  CHECK(root(read_pickle("U\2ab.", "p")).text == "ab");
  CHECK(root(read_pickle("(K\1K\2\x91.", "p")).kind == Kind::set);
  CHECK(root(read_pickle("X\0\0\0\0Q."s, "p")).kind == Kind::persistent);
}

TEST_CASE("pickle: a text that is stored once makes no long names of classes, and not many") {
  const auto twice = [](size_t bytes, int times) {
    std::string pickle = "X" + test::little_endian(bytes, 4) + std::string(bytes, 'a') + "q" + '\0' + "(";
    for (int i = 0; i < times; ++i) pickle += "h\0h\0\x93"s;
    return pickle + "l.";
  };
  CHECK(root(read_pickle(twice(500, 1000), "p")).items.size() == 1000);
  CHECK(pickle_refusal(twice(600, 1)) ==
        "p, byte 612: the name of a class has 1201 bytes; at most 1024 are read" + write_again);
  CHECK(pickle_refusal(twice(100'000, 50'000)) ==
        "p, byte 100012: the name of a class has 200001 bytes; at most 1024 are read" + write_again);
  CHECK(pickle_refusal(twice(500, 5000)) ==
        "p, byte 21462: the names of classes take more than 4194304 bytes" + write_again);
  CHECK(pickle_refusal("c" + std::string(1020, 'm') + "\nname\n.") ==
        "p, byte 0: the name of a class has 1025 bytes; at most 1024 are read" + write_again);
}

}  // namespace dtk
