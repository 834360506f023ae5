// A reader of pickles that executes nothing: it builds plain values from the few opcodes that weight files
// need. Opcodes: CPython, Lib/pickletools.py (protocols 2 to 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lmdeploy {

/// A Python name that a pickle may mention. Any other is refused.
struct PickleGlobal {
  enum class Use {
    kValue,  // may be mentioned
    kCall,   // may be "called": the result is the pair (name, arguments), which the caller makes sense of
    kDict,   // collections.OrderedDict: called, it makes a dict
  };
  std::string_view module;
  std::string_view name;
  Use use = Use::kValue;
};

using PickleId = uint32_t;  // an index into Pickle::values

struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,  // its value is not kept
    kString,
    kGlobal,
    kTuple,
    kList,
    kDict,
    kCall,
    kPersistent,
  };
  Kind kind = Kind::kNone;
  bool ordered = false;         // kDict: made by an OrderedDict
  int64_t number = 0;           // kBool, kInt; kGlobal: its index in the table
  std::string_view text;        // kString: UTF-8 or bytes, in the pickle
  std::vector<PickleId> items;  // kTuple, kList; kDict: key, value, key, value, ...; kCall: name, arguments;
                                // kPersistent: the id
};

struct Pickle {
  std::vector<PickleValue> values;  // may refer to each other in cycles
  PickleId root = 0;
  size_t size = 0;  // bytes up to and with STOP
};

/// Reads the pickle at the beginning of `bytes`, which must outlive the result. `where` begins every message.
/// Work and memory are bounded by the bytes that are there and by a number of steps. Throws Error:
/// kUnsupported for a name that is not in `globals` or an opcode that weight files do not need, kInvalidData
/// for what is no pickle.
Pickle parse_pickle(std::span<const std::byte> bytes, std::string_view where,
                    std::span<const PickleGlobal> globals);

}  // namespace lmdeploy
