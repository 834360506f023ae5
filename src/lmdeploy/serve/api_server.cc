#include "lmdeploy/serve/api_server.h"

#include <fmt/format.h>
#include <algorithm>

#include "lmdeploy/core/log.h"
#include "lmdeploy/http/api_key.h"
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/pages.h"
#include "lmdeploy/serve/routes.h"

namespace lmdeploy {
namespace {

/// Throws ApiError: 404 that names the path, or 405 with the methods that there are.
const Route& find_route(const http::Request& request, bool show_docs) {
  std::string methods;
  for (const Route& route : routes()) {
    if (!is_path_of(route, request.url.path)) continue;
    if (request.method == route.method ||
        (request.method == "HEAD" && std::string_view(route.method) == "GET"))
      return route;
    methods += (methods.empty() ? "" : ", ") + std::string(route.method);
    if (methods == "GET") methods += ", HEAD";
  }
  if (!methods.empty()) {
    ApiErrorInfo info{405, cat(request.method, " ", request.url.path, ": expected ", methods), {}, {}};
    info.allow = methods;
    throw ApiError(std::move(info));
  }
  const char* const list = show_docs ? "; /openapi.json lists what there is" : "";
  throw ApiError({404, cat("there is no ", request.url.path, " here", list), {}, {}});
}

void log_access(const http::AccessRecord& record) {
  LMD_LOG(kInfo, record.client, " \"", record.method, " ", record.target, "\" ", record.status, " ",
          record.bytes, " bytes ", fmt::format("{:.1f}", record.seconds * 1e3), " ms ", record.id);
}

}  // namespace

ApiServer::ApiServer(http::ServerOptions http_options, ServiceOptions options)
    : service_(std::move(options)) {
  service_.set_connection_count([this] { return server_ == nullptr ? 0 : server_->counts().connections; });
  server_ = std::make_unique<http::Server>(
      std::move(http_options), [this](http::Exchange& exchange) { return handle(exchange); },
      [](const http::Request& request, int status, const std::string& message) {
        return error_response(request, {status, message, {}, {}});
      },
      log_access);
}

ApiServer::~ApiServer() { stop(); }

http::Task<> ApiServer::handle(http::Exchange& exchange) {
  std::optional<ApiErrorInfo> failure;
  try {
    co_await dispatch(exchange);
  } catch (const http::ClientGone&) {
    throw;
  } catch (...) {
    failure = current_api_error();
  }
  if (!failure) co_return;
  if (exchange.answered()) throw Error(ErrorCode::kInternal, failure->message);
  if (failure->status == 500)
    LMD_LOG(kError, exchange.request().method, " ", exchange.request().url.path, " (", exchange.request().id,
            "): ", failure->message);
  co_await exchange.respond(error_response(exchange.request(), *failure));
}

http::Task<> ApiServer::dispatch(http::Exchange& exchange) {
  const http::Request& request = exchange.request();
  if (const std::optional<Page> page = find_page(request.url.path, service_.options().show_docs)) {
    co_await serve_page(*page, exchange);
    co_return;
  }
  const Route* route = nullptr;
  std::optional<ApiErrorInfo> unknown;
  try {
    route = &find_route(request, service_.options().show_docs);
  } catch (const ApiError& error) {
    unknown = error.info();
  }
  const bool open =
      route != nullptr && (route->access == Access::kOpen ||
                           (service_.options().open_metrics && std::string_view(route->path) == "/metrics"));
  const std::vector<std::string>& keys = service_.options().api_keys;
  if (!open && !keys.empty() && !http::has_key(request.headers, keys))
    throw ApiError({401, "Please request with valid api key!", {}, "invalid_api_key"});
  if (unknown) throw ApiError(*unknown);
  if (const auto* answer = std::get_if<0>(&route->handle))
    co_await exchange.respond((*answer)(service_, request));
  else
    co_await std::get<1>(route->handle)(service_, exchange);
}

bool ApiServer::drain(std::chrono::milliseconds timeout) { return server_->drain(timeout); }

void ApiServer::stop() { server_->stop(); }

}  // namespace lmdeploy
