// Nodes and edges, and what is cut off when a grammar is done.
#include "lmdeploy/text/grammar/grammar.h"

#include <algorithm>
#include <array>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/grammar/work_limit.h"

namespace lmdeploy::grammar {
namespace {

constexpr size_t kMostNodes = 400'000;

// The parts of the edges that read a byte of the set; most edges stay as they are.
void keep_bytes(std::vector<ByteEdge>& edges, const ByteSet& set) {
  const auto is_whole = [&](const ByteEdge& edge) {
    return std::all_of(set.begin() + edge.first, set.begin() + edge.last + 1, [](bool in) { return in; });
  };
  if (std::ranges::all_of(edges, is_whole)) return;
  std::vector<ByteEdge> out;
  for (const ByteEdge& edge : edges)
    for (int byte = edge.first; byte <= edge.last; ++byte)
      if (set[static_cast<size_t>(byte)])
        out.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), edge.next});
  edges = std::move(out);
}

}  // namespace

NodeId GrammarBuilder::add() {
  if (grammar_.nodes.size() >= kMostNodes)
    throw Error(ErrorCode::kInvalidArgument,
                cat(where_, ": the grammar needs more than ", kMostNodes, " nodes; expected a smaller one"));
  WorkLimit::spend(4);
  grammar_.nodes.emplace_back();
  return static_cast<NodeId>(grammar_.nodes.size() - 1);
}

NodeId GrammarBuilder::add_end() {
  const NodeId node = add();
  mark_end(node);
  return node;
}

void GrammarBuilder::bytes(NodeId from, uint8_t first, uint8_t last, NodeId to) {
  grammar_.nodes[from].bytes.push_back({first, last, to});
}

void GrammarBuilder::byte(NodeId from, char c, NodeId to) {
  bytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
}

void GrammarBuilder::jump(NodeId from, NodeId to) { grammar_.nodes[from].jumps.push_back(to); }

void GrammarBuilder::call(NodeId from, NodeId rule, NodeId to) {
  grammar_.nodes[from].calls.push_back({rule, to});
}

NodeId GrammarBuilder::call(NodeId from, NodeId rule) {
  const NodeId to = add();
  call(from, rule, to);
  return to;
}

NodeId GrammarBuilder::literal(NodeId from, std::string_view text) {
  for (const char c : text) {
    const NodeId to = add();
    byte(from, c, to);
    from = to;
  }
  return from;
}

NodeId GrammarBuilder::repetition(Repetition repetition) {
  const NodeId node = add();
  grammar_.nodes[node].repetition = static_cast<int32_t>(grammar_.repetitions.size());
  grammar_.repetitions.push_back(repetition);
  return node;
}

void GrammarBuilder::one_of(NodeId from, const std::vector<std::string>& texts, NodeId to) {
  std::map<std::pair<NodeId, char>, NodeId> known;
  for (const std::string& text : texts) {
    NodeId at = from;
    for (const char c : text) {
      const auto [next, is_new] = known.try_emplace({at, c}, 0);
      if (is_new) {
        next->second = add();
        byte(at, c, next->second);
      }
      at = next->second;
    }
    jump(at, to);
  }
}

template <typename Visit>
void GrammarBuilder::for_each_needed(const Node& node, Visit visit) const {
  for (const ByteEdge& edge : node.bytes) visit(edge.next);
  for (const NodeId next : node.jumps) visit(next);
  for (const CallEdge& edge : node.calls) {
    visit(edge.rule);
    visit(edge.next);
  }
  if (node.repetition >= 0) visit(grammar_.repetitions[static_cast<size_t>(node.repetition)].body);
}

// For each node, those that lead to it or call it: dependents[begins[id]] to dependents[begins[id + 1]].
GrammarBuilder::Dependents GrammarBuilder::dependents() const {
  Dependents out;
  out.begins.resize(grammar_.nodes.size() + 2);
  for (const Node& node : grammar_.nodes) for_each_needed(node, [&](NodeId id) { ++out.begins[id + 2]; });
  for (size_t i = 2; i < out.begins.size(); ++i) out.begins[i] += out.begins[i - 1];
  out.nodes.resize(out.begins.back());
  for (NodeId from = 0; from < grammar_.nodes.size(); ++from)
    for_each_needed(grammar_.nodes[from], [&](NodeId id) { out.nodes[out.begins[id + 1]++] = from; });
  return out;
}

// A node is productive when something can lead from it to the end of its rule.
std::vector<uint8_t> GrammarBuilder::productive() const {
  const std::vector<Node>& nodes = grammar_.nodes;
  const Dependents dependents = this->dependents();
  std::vector<uint8_t> good(nodes.size());
  const auto holds = [&](const Node& node) {
    if (node.is_end) return true;
    if (node.repetition >= 0) {
      const Repetition& repetition = grammar_.repetitions[static_cast<size_t>(node.repetition)];
      return repetition.min == 0 || good[repetition.body] != 0;
    }
    return std::ranges::any_of(node.bytes, [&](const ByteEdge& edge) { return good[edge.next] != 0; }) ||
           std::ranges::any_of(node.jumps, [&](NodeId next) { return good[next] != 0; }) ||
           std::ranges::any_of(node.calls,
                               [&](const CallEdge& edge) { return good[edge.rule] && good[edge.next]; });
  };
  std::vector<NodeId> pending(nodes.size());
  for (NodeId id = 0; id < nodes.size(); ++id) pending[id] = id;
  while (!pending.empty()) {
    const NodeId id = pending.back();
    pending.pop_back();
    if (good[id] || !holds(nodes[id])) continue;
    good[id] = 1;
    for (uint32_t i = dependents.begins[id]; i < dependents.begins[id + 1]; ++i)
      pending.push_back(dependents.nodes[i]);  // what needs it may hold now
  }
  return good;
}

bool GrammarBuilder::finish(NodeId start, const ByteSet& bytes, Grammar& out) && {
  if (!std::ranges::all_of(bytes, [](bool in) { return in; }))
    for (Node& node : grammar_.nodes) keep_bytes(node.bytes, bytes);
  const std::vector<uint8_t> good = productive();
  if (!good[start]) return false;
  for (Node& node : grammar_.nodes) {
    std::erase_if(node.bytes, [&](const ByteEdge& edge) { return !good[edge.next]; });
    std::erase_if(node.jumps, [&](NodeId next) { return !good[next]; });
    std::erase_if(node.calls, [&](const CallEdge& edge) { return !good[edge.rule] || !good[edge.next]; });
  }
  for (Repetition& repetition : grammar_.repetitions)
    if (!good[repetition.body]) repetition.max = 0;
  grammar_.start = start;
  out = std::move(grammar_);
  return true;
}

}  // namespace lmdeploy::grammar
