// The members of a JSON object: those declared, in their order, then others.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/text/grammar/grammar.h"

namespace lmdeploy::grammar {

struct ObjectMembers {
  struct Member {
    std::string key;   // as JSON text
    NodeId value = 0;  // rule
    bool required = false;
  };
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  std::vector<Member> declared;
  std::optional<NodeId> other;  // rule: key, colon and value of any other member
  uint64_t min = 0, max = kNoLimit;
};

/// From `start` over the whole object to `end`. Other members count once towards `min`: their keys may be the
/// same.
void add_object(GrammarBuilder& builder, const ObjectMembers& members, NodeId blanks, NodeId start,
                NodeId end);

}  // namespace lmdeploy::grammar
