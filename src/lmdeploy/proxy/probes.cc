#include "lmdeploy/proxy/probes.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <thread>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/http/signal.h"
#include "lmdeploy/proxy/passed_headers.h"

namespace lmdeploy::proxy {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

http::ClientOptions limited(http::ClientOptions options, const ProbeOptions& probe) {
  options.connect_timeout = options.answer_timeout = options.piece_timeout = options.write_timeout =
      probe.timeout;
  options.max_kept = 0;
  return options;
}

/// One thread runs all of it, so nothing here needs a mutex.
class Probes::Impl {
 public:
  Impl(NodeTable& table, http::ClientOptions client_options, ProbeOptions options, std::string proxy_name,
       std::function<void()> each_round)
      : table_(table),
        options_(options),
        proxy_name_(std::move(proxy_name)),
        each_round_(std::move(each_round)),
        client_(limited(std::move(client_options), options)) {
    asio::co_spawn(io_, watch(), asio::detached);
    table_.set_on_failure([wake = wake_] { wake.set(); });
    thread_ = std::thread([this] { io_.run(); });
  }

  ~Impl() {
    table_.set_on_failure({});
    asio::post(io_, [this] {
      stopping_ = true;
      for (http::Call* call : calls_) call->cancel();
      wake_.set();
    });
    thread_.join();
    client_.close();
  }

 private:
  struct Schedule {
    bool up = true;
    bool running = false;
    Clock::time_point due = Clock::time_point::min();
    milliseconds retry{0};
  };

  http::Task<> watch() {
    while (!stopping_) {
      each_round_();
      const milliseconds pause = probe_those_due();
      co_await wake_.wait(pause);
    }
  }

  /// How long until the next one is due.
  milliseconds probe_those_due() {
    const Clock::time_point now = Clock::now();
    Clock::time_point next = now + std::min(options_.interval, milliseconds(30'000));
    std::map<uint64_t, Schedule> kept;
    for (const Node& node : table_.nodes()) {
      Schedule schedule = schedules_[node.id];
      if (schedule.up && !node.up) schedule.due = now;  // a request found it out
      schedule.up = node.up;
      if (!schedule.running && schedule.due <= now) {
        schedule.running = true;
        asio::co_spawn(io_, probe(node), asio::detached);
      }
      if (!schedule.running) next = std::min(next, schedule.due);
      kept[node.id] = schedule;
    }
    schedules_ = std::move(kept);
    return std::max(std::chrono::ceil<milliseconds>(next - now), milliseconds(1));
  }

  http::Task<> probe(Node node) {
    const bool well = co_await is_well(node);
    if (stopping_) co_return;
    table_.set_up(node.id, well);
    const auto found = schedules_.find(node.id);
    if (found == schedules_.end()) co_return;
    Schedule& schedule = found->second;
    schedule.running = false;
    schedule.up = well;
    schedule.retry =
        well ? milliseconds(0) : std::clamp(2 * schedule.retry, options_.first_retry, options_.last_retry);
    schedule.due = Clock::now() + (well ? options_.interval : schedule.retry);
    wake_.set();
  }

  http::Task<bool> is_well(const Node& node) {
    http::Call call(client_);
    calls_.push_back(&call);
    bool well = false;
    try {
      http::ClientRequest request;
      request.target = "/health";
      add_via(request.headers, proxy_name_);
      co_await call.send(node.where, request);
      well = call.status() == 200 || call.status() == 404;
      if (!well) LMD_LOG(kDebug, node.url, "/health: status ", call.status());
    } catch (const Error& error) {
      LMD_LOG(kDebug, "probe: ", error.what());
    }
    std::erase(calls_, &call);
    co_return well;
  }

  NodeTable& table_;
  const ProbeOptions options_;
  const std::string proxy_name_;
  const std::function<void()> each_round_;
  asio::io_context io_;
  http::Client client_;
  http::Signal wake_;
  bool stopping_ = false;
  std::vector<http::Call*> calls_;
  std::map<uint64_t, Schedule> schedules_;  // by id
  std::thread thread_;
};

Probes::Probes(NodeTable& table, http::ClientOptions client_options, ProbeOptions options,
               std::string proxy_name, std::function<void()> each_round)
    : impl_(std::make_unique<Impl>(table, std::move(client_options), options, std::move(proxy_name),
                                   std::move(each_round))) {}
Probes::~Probes() = default;

}  // namespace lmdeploy::proxy
