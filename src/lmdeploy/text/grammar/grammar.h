// A grammar over bytes: nodes with edges, some of which call other nodes. And how one is put together.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lmdeploy/text/grammar/dfa.h"
#include "lmdeploy/text/grammar/slices.h"

namespace lmdeploy::grammar {

using NodeId = uint32_t;
using ByteSet = std::array<bool, 256>;

struct ByteEdge {
  uint8_t first = 0, last = 0;
  NodeId next = 0;
};
/// Whatever leads from `rule` to an end comes first, then `next` goes on.
struct CallEdge {
  NodeId rule = 0, next = 0;
};
/// The node is `body`, min to max times; it has no edges of its own.
struct Repetition {
  static constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();
  NodeId body = 0;  // never empty
  uint32_t min = 0, max = kNoLimit;
  bool of_characters = false;  // the body is one character of a JSON string, and only its quote can follow
};

struct Node {
  std::vector<ByteEdge> bytes;
  std::vector<NodeId> jumps;  // nothing is read
  std::vector<CallEdge> calls;
  int32_t repetition = -1;  // index into Grammar::repetitions
  bool is_end = false;      // of the rule that led here
  Rooms rooms;              // for characters of each slice, within the rule and after it
};

struct Grammar {
  std::vector<Node> nodes;
  std::vector<Repetition> repetitions;
  NodeId start = 0;
};

/// How the characters of a text are written.
enum class Spelling {
  kPlain,      // as UTF-8
  kJsonString  // the same, with the escapes that JSON demands: each text has one spelling
};

/// There are no circles of jumps and no rule calls itself before it has read a byte: who builds sees to that.
class GrammarBuilder {
 public:
  /// `where` begins the message of the Error(kInvalidArgument) thrown when there are too many nodes.
  explicit GrammarBuilder(std::string_view where) : where_(where) { add(); }  // no edge leads to node 0

  NodeId add();
  NodeId add_end();
  void bytes(NodeId from, uint8_t first, uint8_t last, NodeId to);
  void byte(NodeId from, char c, NodeId to);
  void jump(NodeId from, NodeId to);
  void call(NodeId from, NodeId rule, NodeId to);
  /// Each returns the node after what it adds.
  NodeId literal(NodeId from, std::string_view text);
  NodeId call(NodeId from, NodeId rule);
  NodeId repetition(Repetition repetition);
  void mark_end(NodeId node) { grammar_.nodes[node].is_end = true; }

  /// One of several texts, from `from` to `to`; they share what they begin with.
  void one_of(NodeId from, const std::vector<std::string>& texts, NodeId to);
  /// The texts of `dfa` from `from` to `to`; the quotes of a JSON string are not part of it. `sealed`: no
  /// character of a slice can stand at `to`.
  void dfa(NodeId from, const Dfa& dfa, Spelling spelling, NodeId to, bool sealed);
  /// Code points as UTF-8.
  void utf8(NodeId from, CodeRange range, NodeId to);

  /// The JSON rules that every schema shares; made when first asked for.
  NodeId blanks(bool compact);
  NodeId json_string();     // with its quotes
  NodeId json_character();  // one of a string, any legal spelling
  NodeId json_integer();
  NodeId json_number();

  /// Without all bytes but these, and what leads nowhere then. False: nothing at all is left of the rule at
  /// `start`.
  bool finish(NodeId start, const ByteSet& bytes, Grammar& out) &&;

 private:
  enum class Shared { kBlanks, kNoBlanks, kString, kCharacter, kInteger, kNumber };
  template <typename Make>
  NodeId shared(Shared which, Make make);
  NodeId number_rule(const Dfa& digits);
  void character(NodeId from, NodeId to);
  void unicode_escape(NodeId from, NodeId to);
  void utf8_from(NodeId from, const uint8_t* low, const uint8_t* high, size_t size, NodeId to);
  NodeId continuation(size_t count, NodeId to);
  void spell(NodeId from, NodeId& escape, CodeRange range, NodeId to);
  void escape_controls(NodeId escape, CodeRange range, NodeId to);
  void hex_digit(NodeId from, char digit, NodeId to);  // a letter in both cases
  struct Dependents {
    std::vector<uint32_t> begins;
    std::vector<NodeId> nodes;
  };
  template <typename Visit>
  void for_each_needed(const Node& node, Visit visit) const;
  Dependents dependents() const;
  std::vector<uint8_t> productive() const;

  std::string_view where_;
  Grammar grammar_;
  std::map<Shared, NodeId> shared_;
  std::map<std::pair<size_t, NodeId>, NodeId> continuations_;
  std::map<std::tuple<std::string, std::string, NodeId>, NodeId> tails_;  // the rest of encodings from, to
};

}  // namespace lmdeploy::grammar
