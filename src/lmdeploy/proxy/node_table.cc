#include "lmdeploy/proxy/node_table.h"

#include <algorithm>
#include <numeric>

#include "lmdeploy/core/log.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/proxy/hash.h"

namespace lmdeploy::proxy {
namespace {

constexpr size_t kHistory = 15;

/// A node without a speed counts as an average one of those that have it.
double default_speed(const std::vector<Node*>& nodes) {
  double sum = 0;
  int count = 0;
  for (const Node* node : nodes) {
    if (!node->status.speed) continue;
    sum += *node->status.speed;
    ++count;
  }
  return count == 0 ? 1 : sum / count;
}

std::optional<double> mean(const std::deque<double>& values) {
  if (values.empty()) return std::nullopt;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

NodeTable::NodeTable(Strategy strategy, uint64_t seed) : strategy_(strategy), seed_(seed) {}

uint64_t NodeTable::entropy() { return entropy_bits(); }

void NodeTable::add(const std::string& url, NodeStatus status) {
  Node node;
  node.url = url;
  node.where = http::parse_url(url);
  node.status = std::move(status);
  const std::lock_guard lock(mutex_);
  node.id = ++last_id_;
  const auto same = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& n) { return n.url == url; });
  if (same != nodes_.end())
    *same = std::move(node);
  else
    nodes_.push_back(std::move(node));
}

bool NodeTable::remove(const std::string& url) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(nodes_, [&](const Node& node) { return node.url == url; }) > 0;
}

std::vector<Node> NodeTable::nodes() const {
  const std::lock_guard lock(mutex_);
  return nodes_;
}

std::set<std::string> NodeTable::models() const {
  const std::lock_guard lock(mutex_);
  std::set<std::string> names;
  for (const Node& node : nodes_) names.insert(node.status.models.begin(), node.status.models.end());
  return names;
}

Node* NodeTable::find(uint64_t id) {
  const auto found =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& node) { return node.id == id; });
  return found == nodes_.end() ? nullptr : &*found;
}

/// Those with a speed first.
std::vector<Node*> NodeTable::candidates(const Inquiry& inquiry, const std::set<uint64_t>& tried, bool up) {
  std::vector<Node*> found;
  for (Node& node : nodes_) {
    const std::vector<std::string>& models = node.status.models;
    if (node.up == up && tried.count(node.id) == 0 &&
        std::find(models.begin(), models.end(), inquiry.model) != models.end())
      found.push_back(&node);
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const Node* node) { return node->status.speed.has_value(); });
  return found;
}

size_t NodeTable::choose_of(const std::vector<Node*>& nodes, const Inquiry& inquiry) {
  const double usual = default_speed(nodes);
  std::vector<Candidate> all;
  for (const Node* node : nodes)
    all.push_back({node->status.speed.value_or(usual), node->status.unfinished, mean(node->status.latency),
                   node->passed_over, hash_text(node->url)});
  return choose(strategy_, all, random_bits(seed_, num_draws_++), inquiry.prefix);
}

std::unique_ptr<NodeTable::Dispatch> NodeTable::dispatch(const Inquiry& inquiry,
                                                         const std::set<uint64_t>& tried) {
  const std::lock_guard lock(mutex_);
  std::vector<Node*> nodes = candidates(inquiry, tried, /*up=*/true);
  if (nodes.empty()) nodes = candidates(inquiry, tried, /*up=*/false);
  if (nodes.empty()) return nullptr;
  const size_t chosen = choose_of(nodes, inquiry);
  for (Node* node : nodes) ++node->passed_over;
  nodes[chosen]->passed_over = 0;
  ++nodes[chosen]->status.unfinished;
  return std::make_unique<Dispatch>(*this, *nodes[chosen]);
}

void NodeTable::set_up(uint64_t id, bool up) {
  const std::lock_guard lock(mutex_);
  Node* node = find(id);
  if (node == nullptr || node->up == up) return;
  node->up = up;
  LMD_LOG(kInfo, "node ", node->url, up ? " is back" : " is out");
}

void NodeTable::set_on_failure(std::function<void()> on_failure) {
  const std::lock_guard lock(mutex_);
  on_failure_ = std::move(on_failure);
}

NodeTable::Dispatch::Dispatch(NodeTable& table, const Node& node)
    : table_(table),
      url_(node.url),
      where_(node.where),
      id_(node.id),
      start_(std::chrono::steady_clock::now()) {}

NodeTable::Dispatch::~Dispatch() {
  const std::lock_guard lock(table_.mutex_);
  if (Node* node = table_.find(id_)) --node->status.unfinished;
}

void NodeTable::Dispatch::finish() {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  const std::lock_guard lock(table_.mutex_);
  Node* node = table_.find(id_);
  if (node == nullptr) return;
  ++node->num_answered;
  node->status.latency.push_back(seconds.count());
  if (node->status.latency.size() > kHistory) node->status.latency.pop_front();
}

void NodeTable::Dispatch::fail() {
  table_.set_up(id_, false);
  std::function<void()> on_failure;
  {
    const std::lock_guard lock(table_.mutex_);
    if (Node* node = table_.find(id_)) ++node->num_failed;
    on_failure = table_.on_failure_;
  }
  if (on_failure) on_failure();
}

}  // namespace lmdeploy::proxy
