// The nodes, who of them is up, and what each is working on.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lmdeploy/http/client.h"
#include "lmdeploy/proxy/node.h"
#include "lmdeploy/proxy/strategy.h"

namespace lmdeploy::proxy {

struct Node {
  std::string url;  // as it was given: its name
  http::Url where;
  uint64_t id = 0;  // of this registration
  NodeStatus status;
  bool up = true;
  int64_t num_answered = 0, num_failed = 0;  // requests, ever
  uint64_t passed_over = 0;                  // see Candidate
};

/// What a request says that matters for the choice.
struct Inquiry {
  std::string model;
  uint64_t prefix = 0;  // hash of the prompt's beginning
};

/// Thread-safe.
class NodeTable {
 public:
  explicit NodeTable(Strategy strategy, uint64_t seed = entropy());

  /// Instead of a node of that url. Throws Error(kInvalidArgument) for a url that is none.
  void add(const std::string& url, NodeStatus status);
  bool remove(const std::string& url);
  /// In the order they came.
  std::vector<Node> nodes() const;
  /// Names of models, each once.
  std::set<std::string> models() const;

  /// One request at a node; unfinished there until it is destroyed.
  class Dispatch {
   public:
    Dispatch(NodeTable& table, const Node& node);
    ~Dispatch();
    Dispatch(const Dispatch&) = delete;
    Dispatch& operator=(const Dispatch&) = delete;
    const std::string& url() const { return url_; }
    const http::Url& where() const { return where_; }
    uint64_t id() const { return id_; }
    /// The answer is complete: its duration counts.
    void finish();
    /// The node did not answer: it is out until a probe finds it well.
    void fail();

   private:
    NodeTable& table_;
    const std::string url_;
    const http::Url where_;
    const uint64_t id_;
    const std::chrono::steady_clock::time_point start_;
  };
  /// A node that has the model and is not among `tried`; those that are down only when no other is left.
  /// nullptr: none.
  std::unique_ptr<Dispatch> dispatch(const Inquiry& inquiry, const std::set<uint64_t>& tried);

  /// What a probe found. A node that was removed meanwhile is not concerned.
  void set_up(uint64_t id, bool up);
  /// Called when a node failed: it is time to probe.
  void set_on_failure(std::function<void()> on_failure);

 private:
  static uint64_t entropy();
  Node* find(uint64_t id);  // under the mutex
  std::vector<Node*> candidates(const Inquiry& inquiry, const std::set<uint64_t>& tried, bool up);
  size_t choose_of(const std::vector<Node*>& nodes, const Inquiry& inquiry);

  const Strategy strategy_;
  const uint64_t seed_;
  mutable std::mutex mutex_;
  uint64_t num_draws_ = 0, last_id_ = 0;
  std::vector<Node> nodes_;
  std::function<void()> on_failure_;
};

}  // namespace lmdeploy::proxy
