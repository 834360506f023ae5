// The conversations that /v1/chat/interactive keeps between requests, by the ids that clients give them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "lmdeploy/http/exchange.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

/// Thread-safe. At most `max_sessions` are kept: beyond that the one unused for longest is forgotten, and
/// `end` ends the engine's session of it.
class InteractiveSessions {
 public:
  using End = std::function<void(ChatSession& session)>;
  InteractiveSessions(End end, size_t max_sessions) : end_(std::move(end)), max_sessions_(max_sessions) {}

  struct Entry {
    ChatSession session;
    bool busy = false;
    std::deque<http::Signal> waiting;
    std::list<int64_t>::iterator place;  // in by_use_
  };

  /// A conversation in the hands of one request.
  class Lease {
   public:
    Lease(InteractiveSessions& sessions, int64_t id, std::shared_ptr<Entry> entry)
        : sessions_(&sessions), id_(id), entry_(std::move(entry)) {}
    Lease(Lease&& other) noexcept
        : sessions_(std::exchange(other.sessions_, nullptr)),
          id_(other.id_),
          entry_(std::move(other.entry_)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() { give_back(); }
    ChatSession& session() { return entry_->session; }
    /// Before the end of its life: session() is another's then.
    void give_back() {
      if (sessions_ != nullptr) std::exchange(sessions_, nullptr)->give_back(id_, entry_);
    }

   private:
    InteractiveSessions* sessions_;
    int64_t id_;
    std::shared_ptr<Entry> entry_;
  };

  /// Waits while another request has it; makes a new one when there is none. Throws http::ClientGone.
  http::Task<Lease> take(http::Exchange& exchange, int64_t id);
  /// Forgets it: the next take() begins anew. The caller ends the engine's session.
  void forget(int64_t id);
  /// Forgets all that nobody has in hand.
  void clear();
  size_t size() const;

 private:
  std::shared_ptr<Entry> find_or_make(int64_t id);
  void give_back(int64_t id, const std::shared_ptr<Entry>& entry);
  /// nullptr: there are not too many.
  std::shared_ptr<Entry> take_out_oldest();

  const End end_;
  const size_t max_sessions_;
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Entry>> entries_;
  std::list<int64_t> by_use_;  // the latest first
};

}  // namespace lmdeploy
