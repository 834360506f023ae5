#include "lmdeploy/text/grammar/object_rule.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace lmdeploy::grammar {
namespace {

class ObjectBuilder {
 public:
  ObjectBuilder(GrammarBuilder& builder, const ObjectMembers& members, NodeId blanks)
      : builder_(builder), members_(members), blanks_(blanks), num_declared_(members.declared.size()) {
    const auto required = static_cast<uint64_t>(
        std::ranges::count_if(members.declared, [](const auto& member) { return member.required; }));
    const uint64_t most = members.other ? ObjectMembers::kNoLimit : num_declared_;
    counts_ = members.min > required || members.max < most;
    last_required_ = 0;
    for (size_t i = 0; i < num_declared_; ++i)
      if (members.declared[i].required) last_required_ = i + 1;
    member_rules_.resize(num_declared_);
  }

  void build(NodeId start, NodeId end) {
    if (members_.min > members_.max) return;
    closing_ = builder_.add();
    builder_.byte(closing_, '}', end);
    const NodeId open = builder_.call(builder_.literal(start, "{"), blanks_);
    builder_.jump(open, next_member({0, 0}));
    if (may_end({0, 0})) builder_.jump(open, closing_);
    while (!pending_.empty()) {
      const auto [place, node] = pending_.front();
      pending_.pop_front();
      fill_next_member(place, node);
    }
  }

 private:
  struct Place {
    size_t next = 0;     // the first declared member that may still come
    uint64_t count = 0;  // members so far, as far as that matters
    auto operator<=>(const Place&) const = default;
  };

  bool may_end(const Place& place) const {
    return place.next >= last_required_ && (!counts_ || place.count >= members_.min);
  }

  // Where a member begins; the comma before it has been read.
  NodeId next_member(Place place) {
    if (!counts_) place.count = 0;
    if (counts_ && members_.max == ObjectMembers::kNoLimit) place.count = std::min(place.count, members_.min);
    const auto [known, is_new] = places_.try_emplace(place, 0);
    if (is_new) {
      known->second = builder_.add();
      pending_.emplace_back(place, known->second);
    }
    return known->second;
  }

  void fill_next_member(const Place& place, NodeId node) {
    if (counts_ && place.count >= members_.max) return;
    if (place.next == num_declared_) {
      if (members_.other) add_others(place, node);
      return;
    }
    const ObjectMembers::Member& member = members_.declared[place.next];
    const Place after = {place.next + 1, place.count + 1};
    const NodeId done =
        counts_ ? builder_.call(node, member_rule(place.next)) : inlined_member(node, place.next);
    builder_.jump(comma(done), next_member(after));
    if (may_end(after)) builder_.call(done, blanks_, closing_);
    if (!member.required) builder_.jump(node, next_member({place.next + 1, place.count}));
  }

  // A member has several places where members are counted.
  NodeId member_rule(size_t index) {
    NodeId& rule = member_rules_[index];
    if (rule != 0) return rule;
    rule = builder_.add();
    builder_.mark_end(add_member(rule, index));
    return rule;
  }

  NodeId inlined_member(NodeId from, size_t index) {
    const NodeId start = builder_.add();
    builder_.jump(from, start);
    return add_member(start, index);
  }

  NodeId add_member(NodeId from, size_t index) {
    const ObjectMembers::Member& member = members_.declared[index];
    const NodeId key = builder_.call(builder_.literal(from, member.key), blanks_);
    return builder_.call(builder_.call(builder_.literal(key, ":"), blanks_), member.value);
  }

  void add_others(const Place& place, NodeId node) {
    if (counts_ && place.count + 1 < members_.min) return;
    NodeId at = builder_.call(node, *members_.other);
    Repetition more;
    const NodeId tail = builder_.add();
    more.body = tail;
    builder_.call(comma(tail), *members_.other, builder_.add_end());
    if (members_.max != ObjectMembers::kNoLimit)
      more.max = static_cast<uint32_t>(
          std::min<uint64_t>(members_.max - place.count - 1, Repetition::kNoLimit - uint64_t{1}));
    at = builder_.call(at, builder_.repetition(more));
    builder_.call(at, blanks_, closing_);
  }

  NodeId comma(NodeId at) {
    return builder_.call(builder_.literal(builder_.call(at, blanks_), ","), blanks_);
  }

  GrammarBuilder& builder_;
  const ObjectMembers& members_;
  const NodeId blanks_;
  const size_t num_declared_;
  bool counts_ = false;
  size_t last_required_ = 0;
  NodeId closing_ = 0;
  std::vector<NodeId> member_rules_;
  std::map<Place, NodeId> places_;
  std::deque<std::pair<Place, NodeId>> pending_;
};

}  // namespace

void add_object(GrammarBuilder& builder, const ObjectMembers& members, NodeId blanks, NodeId start,
                NodeId end) {
  ObjectBuilder(builder, members, blanks).build(start, end);
}

}  // namespace lmdeploy::grammar
