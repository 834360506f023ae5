#include "lmdeploy/serve/proxy_registration.h"

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/json.hpp>
#include <thread>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/http/signal.h"

namespace lmdeploy {

namespace asio = boost::asio;

namespace {

constexpr size_t kMaxReply = 16 << 20;

http::ClientOptions client_options(const ProxyRegistrationOptions& options) {
  http::ClientOptions client;
  client.connect_timeout = client.write_timeout = client.answer_timeout = client.head_timeout =
      client.piece_timeout = options.timeout;
  client.max_kept = 0;
  return client;
}

/// The address that this machine shows to `url`. Connecting a datagram socket sends nothing; it only chooses
/// the way.
std::string address_towards(const http::Url& url) {
  try {
    asio::io_context io;
    asio::ip::udp::resolver resolver(io);
    const auto target = resolver.resolve(url.host, std::to_string(url.port));
    asio::ip::udp::socket socket(io);
    socket.connect(target.begin()->endpoint());
    return socket.local_endpoint().address().to_string();
  } catch (const boost::system::system_error& error) {
    throw Error(ErrorCode::kIo, cat("no way to ", http::origin(url), ": ", error.code().message()));
  }
}

std::string own_url(const ProxyRegistrationOptions& options, const http::Url& proxy) {
  std::string host = options.host.empty() ? address_towards(proxy) : options.host;
  if (host.find(':') != std::string::npos) host = cat("[", host, "]");
  return cat(options.tls ? "https://" : "http://", host, ":", options.port);
}

std::string node_text(const std::string& url, const std::vector<std::string>& models) {
  JsonObject status{{"models", JsonArray(models.begin(), models.end())}, {"role", "Hybrid"}};
  return to_json_text(JsonObject{{"url", url}, {"status", std::move(status)}});
}

}  // namespace

class ProxyRegistration::Impl {
 public:
  explicit Impl(ProxyRegistrationOptions options)
      : options_(std::move(options)),
        proxy_(http::parse_url(options_.proxy_url)),
        client_(client_options(options_)) {
    asio::co_spawn(io_, stay_listed(), asio::detached);
    thread_ = std::thread([this] { io_.run(); });
  }

  ~Impl() {
    stopping_ = true;
    wake_.set();
    thread_.join();
    client_.close();
  }

 private:
  http::Task<> stay_listed() {
    while (!stopping_) {
      co_await attempt(&Impl::register_if_missing);
      if (!stopping_) co_await wake_.wait(options_.interval);
    }
    if (!listed_as_.empty()) co_await attempt(&Impl::leave);
  }

  /// What stays wrong is said once.
  http::Task<> attempt(http::Task<> (Impl::*action)()) {
    std::string failure;
    try {
      co_await (this->*action)();
    } catch (const Error& error) {
      failure = error.what();
    }
    if (!failure.empty() && failure != last_failure_)
      LMD_LOG(kWarning, "--proxy-url ", options_.proxy_url, ": ", failure);
    last_failure_ = failure;
  }

  http::Task<> register_if_missing() {
    const std::string url = own_url(options_, proxy_);
    const Json nodes = co_await ask("GET", "/nodes/status", "");
    if (!nodes.is_object())
      throw Error(ErrorCode::kIo, cat("/nodes/status: found ", json_kind(nodes), ", expected an object"));
    if (nodes.get_object().contains(url)) {
      listed_as_ = url;
      co_return;
    }
    const std::string node = node_text(url, options_.models);
    const Json answer = co_await ask("POST", "/nodes/add", node);
    if (answer != Json("Added successfully"))
      throw Error(ErrorCode::kIo, cat("/nodes/add: ", to_json_text(answer)));
    listed_as_ = url;
    LMD_LOG(kInfo, "registered with ", options_.proxy_url, " as ", url);
  }

  http::Task<> leave() {
    const std::string node = to_json_text(JsonObject{{"url", listed_as_}});
    co_await ask("POST", "/nodes/remove", node);
  }

  http::Task<Json> ask(const char* method, const char* path, std::string_view body) {
    http::Call call(client_);
    http::ClientRequest request;
    request.method = method;
    request.target = path;
    request.body = body;
    if (!body.empty()) request.headers.add("Content-Type", "application/json");
    if (!options_.api_key.empty()) request.headers.add("Authorization", "Bearer " + options_.api_key);
    co_await call.send(proxy_, request);
    const std::string answer = co_await http::read_all(call, kMaxReply);
    if (call.status() != 200)
      throw Error(ErrorCode::kIo, cat(path, ": status ", call.status(), ", expected 200"));
    co_return parse_json(answer, path);
  }

  const ProxyRegistrationOptions options_;
  const http::Url proxy_;
  asio::io_context io_;
  http::Client client_;
  http::Signal wake_;
  std::atomic<bool> stopping_ = false;
  std::string listed_as_;  // empty: never yet
  std::string last_failure_;
  std::thread thread_;
};

ProxyRegistration::ProxyRegistration(ProxyRegistrationOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
ProxyRegistration::~ProxyRegistration() = default;

}  // namespace lmdeploy
