#include "lmdeploy/proxy/proxy.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/http/api_key.h"
#include "lmdeploy/http/request_id.h"
#include "lmdeploy/proxy/forward.h"
#include "lmdeploy/proxy/node_file.h"
#include "lmdeploy/proxy/passed_headers.h"
#include "lmdeploy/proxy/replies.h"
#include "lmdeploy/proxy/routes.h"

namespace lmdeploy::proxy {

using http::Exchange;

namespace {

void log_access(const http::AccessRecord& record) {
  LMD_LOG(kInfo, record.client, " \"", record.method, " ", record.target, "\" ", record.status, " ",
          record.bytes, " bytes, ", record.seconds, " s, ", record.id);
}

}  // namespace

class Proxy::Impl {
 public:
  explicit Impl(ProxyOptions options)
      : options_(std::move(options)),
        table_(options_.strategy),
        client_(options_.client),
        control_(limited(options_.client, options_.probes)) {
    load();
    probes_.emplace(table_, options_.client, options_.probes, forward_.name, [this] { client_.close_old(); });
    server_.emplace(
        options_.server, [this](Exchange& exchange) { return handle(exchange); },
        [](const http::Request& request, int status, const std::string& message) {
          return error_reply(request, status, message);
        },
        log_access);
  }
  ~Impl() { stop(); }

  int port() const { return server_->port(); }
  NodeTable& nodes() { return table_; }
  bool drain(std::chrono::milliseconds timeout) { return server_->drain(timeout); }
  /// The client's connections end before what drives them.
  void stop() {
    server_->stop();
    client_.close();
    control_.close();
  }

 private:
  http::Task<> handle(Exchange& exchange) {
    const http::Request& request = exchange.request();
    if (has_passed(request.headers, forward_.name)) {
      co_await exchange.respond(
          error_reply(request, 508,
                      "loop: the request has come back to this proxy; one of the urls in /nodes/status "
                      "leads here"));
      co_return;
    }
    std::string allowed;
    const Route* route = find_route(request.method, request.url.path, allowed);
    const bool open =
        options_.api_keys.empty() || (route != nullptr && route->open) || request.method == "OPTIONS";
    http::Response refusal;
    if (!open && !http::has_key(request.headers, options_.api_keys)) {
      refusal = error_reply(request, 401, "a valid API key is needed: Authorization: Bearer KEY");
    } else if (route == nullptr && allowed.empty()) {
      refusal = error_reply(request, 404, cat("there is no ", request.url.path, " here"));
    } else if (route == nullptr) {
      refusal = error_reply(request, 405, cat(request.url.path, " does not take ", request.method));
      refusal.headers.set("Allow", allowed);
    }
    if (route == nullptr || refusal.status != 200)
      co_await exchange.respond(std::move(refusal));
    else
      co_await route->handler(exchange, routes_);
  }

  void load() {
    if (options_.node_file.empty()) return;
    try {
      for (auto& [url, status] : read_node_file(options_.node_file)) table_.add(url, std::move(status));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kIo) throw;
      const std::string kept = options_.node_file + ".broken";
      const bool moved = std::rename(options_.node_file.c_str(), kept.c_str()) == 0;
      if (!moved)
        throw Error(ErrorCode::kIo, cat(error.what(), "; and it cannot be moved: ", std::strerror(errno)));
      LMD_LOG(kError, "starting without nodes: ", error.what(), "; the file is now ", kept);
    }
  }

  void save() {
    if (options_.node_file.empty()) return;
    const std::lock_guard lock(save_mutex_);
    write_node_file(options_.node_file, table_.nodes());
  }

  const ProxyOptions options_;
  NodeTable table_;
  http::Client client_, control_;
  ForwardContext forward_{table_, client_, "lmdeploy-proxy-" + http::random_name(22),
                          options_.server.tls.has_value()};
  RouteContext routes_{forward_, control_, [this] { save(); }};
  std::mutex save_mutex_;
  std::optional<Probes> probes_;
  std::optional<http::Server> server_;
};

Proxy::Proxy(ProxyOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Proxy::~Proxy() = default;
int Proxy::port() const { return impl_->port(); }
NodeTable& Proxy::nodes() { return impl_->nodes(); }
bool Proxy::drain(std::chrono::milliseconds timeout) { return impl_->drain(timeout); }
void Proxy::stop() { impl_->stop(); }

}  // namespace lmdeploy::proxy
