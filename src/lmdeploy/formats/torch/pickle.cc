#include "lmdeploy/formats/torch/pickle.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/byte_reader.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

using Kind = PickleValue::Kind;

// A checkpoint of 80 000 tensors in one file needs 3 million.
constexpr size_t kMaxSteps = size_t{4} << 20;
constexpr size_t kMaxNameBytes = 4096;

enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kBinFloat = 'G',
  kNone = 'N',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kTuple = 't',
  kBinPersId = 'Q',
  kGlobalName = 'c',
  kReduce = 'R',
  kBuild = 'b',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, std::string_view where, std::span<const PickleGlobal> globals)
      : bytes_(bytes), reader_(bytes, where), where_(where), globals_(globals) {}

  Pickle run() {
    for (;;) {
      spend(1);
      at_ = reader_.position();
      const auto opcode = reader_.read<uint8_t>("a pickle opcode");
      if (opcode == kStop) return finish();
      if (!scalar(opcode) && !container(opcode) && !memo(opcode) && !call(opcode)) refuse(opcode);
    }
  }

 private:
  void spend(size_t steps) {
    steps_ += steps;
    if (steps_ > kMaxSteps) fail(cat("more than ", kMaxSteps, " steps, which no weight file needs"));
  }
  [[noreturn]] void fail(const std::string& what, ErrorCode code = ErrorCode::kInvalidData) const {
    throw Error(code, cat(where_, ": pickle byte ", at_, ": ", what));
  }
  [[noreturn]] void refuse(uint8_t opcode) const {
    constexpr char kHex[] = "0123456789abcdef";
    const char hex[] = {kHex[opcode >> 4], kHex[opcode & 15], '\0'};
    fail(cat("opcode 0x", hex, " is not one that weight files need; nothing of the file is executed"),
         ErrorCode::kUnsupported);
  }

  Pickle finish() {
    out_.root = pop();
    out_.size = reader_.position();
    return std::move(out_);
  }

  // ---- the stack

  PickleValue& push(Kind kind) {
    stack_.push_back(static_cast<PickleId>(out_.values.size()));
    out_.values.emplace_back().kind = kind;
    return out_.values.back();
  }
  void push_number(Kind kind, int64_t number) { push(kind).number = number; }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleId pop() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    const PickleId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  std::vector<PickleId> pop_to_mark() {
    if (marks_.empty()) fail("there is no mark");
    std::vector<PickleId> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  PickleValue& top(Kind kind, std::string_view expected) {
    if (stack_.size() <= floor()) fail("the stack is empty");
    PickleValue& value = out_.values[stack_.back()];
    if (value.kind != kind) fail(cat("the value on the stack is not ", expected));
    return value;
  }

  // ---- opcodes, by what they do; false: not one of these

  bool scalar(uint8_t opcode) {
    switch (opcode) {
      case kNone:
        push(Kind::kNone);
        return true;
      case kNewTrue:
      case kNewFalse:
        push_number(Kind::kBool, opcode == kNewTrue ? 1 : 0);
        return true;
      case kBinInt:
        push_number(Kind::kInt, reader_.read<int32_t>("an integer"));
        return true;
      case kBinInt1:
        push_number(Kind::kInt, reader_.read<uint8_t>("an integer"));
        return true;
      case kBinInt2:
        push_number(Kind::kInt, reader_.read<uint16_t>("an integer"));
        return true;
      case kLong1:
        push_number(Kind::kInt, read_long());
        return true;
      case kBinFloat:
        reader_.take(8, "a number");
        push(Kind::kFloat);
        return true;
      case kShortBinString:
      case kShortBinUnicode:
        push_string(reader_.read<uint8_t>("a length"));
        return true;
      case kBinString:
      case kBinUnicode:
        push_string(reader_.read<uint32_t>("a length"));
        return true;
      case kBinUnicode8:
        push_string(reader_.read<uint64_t>("a length"));
        return true;
      default:
        return false;
    }
  }

  int64_t read_long() {
    const auto size = reader_.read<uint8_t>("a length");
    if (size > 8) fail(cat("an integer of ", size, " bytes, at most 8 are supported"));
    const auto bytes = reader_.take(size, "an integer");
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
    const int unused = 64 - 8 * size;
    return size == 0 ? 0 : static_cast<int64_t>(value << unused) >> unused;  // keeps the sign
  }

  void push_string(uint64_t size) {
    const auto bytes = reader_.take(size, "a string");
    push(Kind::kString).text = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  bool container(uint8_t opcode) {
    switch (opcode) {
      case kMark:
        marks_.push_back(stack_.size());
        return true;
      case kEmptyTuple:
        push(Kind::kTuple);
        return true;
      case kTuple1:
      case kTuple2:
      case kTuple3:
        push_tuple(opcode - kTuple1 + 1);
        return true;
      case kTuple: {
        std::vector<PickleId> items = pop_to_mark();
        push(Kind::kTuple).items = std::move(items);
        return true;
      }
      case kEmptyList:
        push(Kind::kList);
        return true;
      case kEmptyDict:
        push(Kind::kDict);
        return true;
      case kAppend:
        extend(Kind::kList, {pop()});
        return true;
      case kAppends:
        extend(Kind::kList, pop_to_mark());
        return true;
      case kSetItem: {
        const PickleId value = pop(), key = pop();
        extend(Kind::kDict, {key, value});
        return true;
      }
      case kSetItems:
        extend(Kind::kDict, pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  void push_tuple(int count) {
    std::vector<PickleId> items(static_cast<size_t>(count));
    for (auto item = items.rbegin(); item != items.rend(); ++item) *item = pop();
    push(Kind::kTuple).items = std::move(items);
  }

  void extend(Kind kind, const std::vector<PickleId>& items) {
    if (kind == Kind::kDict && items.size() % 2 != 0) fail("a key has no value");
    auto& target = top(kind, kind == Kind::kDict ? "a dict" : "a list").items;
    target.insert(target.end(), items.begin(), items.end());
  }

  bool memo(uint8_t opcode) {
    switch (opcode) {
      case kBinPut:
        put(reader_.read<uint8_t>("a memo number"));
        return true;
      case kLongBinPut:
        put(reader_.read<uint32_t>("a memo number"));
        return true;
      case kMemoize:
        put(static_cast<uint32_t>(memo_.size()));
        return true;
      case kBinGet:
        get(reader_.read<uint8_t>("a memo number"));
        return true;
      case kLongBinGet:
        get(reader_.read<uint32_t>("a memo number"));
        return true;
      default:
        return false;
    }
  }

  void put(uint32_t number) {
    if (stack_.size() <= floor()) fail("the stack is empty");
    memo_[number] = stack_.back();
  }
  void get(uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) fail(cat("memo ", number, " has not been set"));
    stack_.push_back(found->second);
  }

  bool call(uint8_t opcode) {
    switch (opcode) {
      case kProto:
        if (const auto version = reader_.read<uint8_t>("a protocol number"); version < 2 || version > 5)
          fail(cat("protocol ", version, ", supported are 2 to 5"), ErrorCode::kUnsupported);
        return true;
      case kFrame:  // groups bytes for unbuffered readers; says nothing about them
        reader_.read<uint64_t>("a frame length");
        return true;
      case kGlobalName: {
        const std::string_view module = read_line();
        push_global(module, read_line());
        return true;
      }
      case kStackGlobal: {
        const std::string_view name = pop_string(), module = pop_string();
        push_global(module, name);
        return true;
      }
      case kReduce:
        reduce();
        return true;
      case kBuild:
        build();
        return true;
      case kBinPersId: {
        const PickleId id = pop();
        push(Kind::kPersistent).items = {id};
        return true;
      }
      default:
        return false;
    }
  }

  std::string_view read_line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + reader_.position(),
                                reader_.remaining());
    const size_t end = rest.substr(0, kMaxNameBytes).find('\n');
    if (end == rest.npos) fail("a name without an end");
    reader_.take(end + 1, "a name");
    return rest.substr(0, end);
  }
  std::string_view pop_string() {
    const PickleValue& value = out_.values[pop()];
    if (value.kind != Kind::kString) fail("a name is not a string");
    return value.text;
  }

  void push_global(std::string_view module, std::string_view name) {
    for (size_t i = 0; i < globals_.size(); ++i) {
      if (globals_[i].module == module && globals_[i].name == name)
        return push_number(Kind::kGlobal, static_cast<int64_t>(i));
    }
    fail(cat("it asks for ", quote(cat(module, ".", name)),
             ", which weight files have no use for; nothing of the file is executed"),
         ErrorCode::kUnsupported);
  }

  // A "call" is remembered, never made.
  void reduce() {
    const PickleId arguments = pop(), callee = pop();
    const PickleValue& name = out_.values[callee];
    if (name.kind != Kind::kGlobal) fail("what is called is not a name", ErrorCode::kUnsupported);
    const PickleGlobal& global = globals_[static_cast<size_t>(name.number)];
    if (out_.values[arguments].kind != Kind::kTuple) fail("the arguments of a call are not a tuple");
    if (global.use == PickleGlobal::Use::kValue)
      fail(cat(quote(cat(global.module, ".", global.name)), " is called; nothing of the file is executed"),
           ErrorCode::kUnsupported);
    if (global.use == PickleGlobal::Use::kDict) return push_ordered_dict(arguments);
    push(Kind::kCall).items = {callee, arguments};
  }

  // OrderedDict(), or OrderedDict([[key, value], ...]) as Python 2 wrote it.
  void push_ordered_dict(PickleId arguments) {
    std::vector<PickleId> items;
    const std::vector<PickleId>& given = out_.values[arguments].items;
    if (given.size() > 1) fail("an OrderedDict of several arguments");
    if (given.size() == 1) {
      const PickleValue& list = out_.values[given[0]];
      if (list.kind != Kind::kList) fail("an OrderedDict of what is not a list");
      spend(list.items.size());  // the one place where items are copied
      for (const PickleId id : list.items) {
        const PickleValue& pair = out_.values[id];
        if ((pair.kind != Kind::kList && pair.kind != Kind::kTuple) || pair.items.size() != 2)
          fail("an OrderedDict of what are not pairs");
        items.insert(items.end(), pair.items.begin(), pair.items.end());
      }
    }
    PickleValue& dict = push(Kind::kDict);
    dict.ordered = true;
    dict.items = std::move(items);
  }

  // The attributes of an OrderedDict (a state_dict has `_metadata`, version numbers) are not kept.
  void build() {
    pop();
    if (!top(Kind::kDict, "an OrderedDict").ordered) fail("attributes of what is not an OrderedDict");
  }

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  std::string_view where_;
  std::span<const PickleGlobal> globals_;
  size_t steps_ = 0;
  size_t at_ = 0;  // of the opcode in work
  Pickle out_;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;  // stack heights
  std::unordered_map<uint32_t, PickleId> memo_;
};

}  // namespace

Pickle parse_pickle(std::span<const std::byte> bytes, std::string_view where,
                    std::span<const PickleGlobal> globals) {
  return Machine(bytes, where, globals).run();
}

}  // namespace lmdeploy
