// Health, metrics, and ending requests or the server.
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/routes.h"

namespace lmdeploy {

http::Response health(Service& service, const http::Request&) {
  const char* status = "healthy";
  std::string message = "ready";
  const std::string failure = service.engine_failure();
  switch (service.state()) {
    case ServiceState::kReady:
      if (!failure.empty()) status = "unhealthy", message = failure;
      break;
    case ServiceState::kLoading:
      status = "initializing", message = "loading the model";
      break;
    case ServiceState::kSleeping:
      status = "sleeping", message = "the engine is asleep";
      break;
    case ServiceState::kStopping:
      status = "unhealthy", message = "shutting down";
      break;
  }
  http::Response response;
  response.status = std::string_view(status) == "healthy" ? 200 : 503;
  if (response.status == 503) response.headers.add("Retry-After", "2");
  response.body = to_json_text(JsonObject{{"status", status}, {"message", message}});
  return response;
}

http::Response metrics_page(Service& service, const http::Request&) {
  if (!service.options().enable_metrics)
    throw ApiError({404, "metrics are off: the server was started with --disable-metrics", {}, {}});
  const auto pipeline = service.pipeline();
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  const Engine& engine = pipeline->engine();
  response.body = service.metrics()->page(engine.stats(), engine.config(), service.load());
  return response;
}

http::Task<> terminate(Service& service, http::Exchange& exchange) {
  if (!service.options().allow_terminate)
    throw ApiError(
        {400,
         "The server can not be terminated. Please add --allow-terminate-by-client when starting it.",
         {},
         {}});
  http::Response empty;
  empty.content_type.clear();
  co_await exchange.respond(std::move(empty));
  service.options().terminate();
}

const Fields& abort_fields() {
  static const Fields fields = {
      {"session_id", FieldType::kInteger, "The request to end", false, -1,
       std::numeric_limits<double>::infinity(), false, "-1"},
      {"abort_all", FieldType::kBool, "End all requests", false, -1, 1, false, "false"}};
  return fields;
}

http::Response abort_request(Service& service, const http::Request& request) {
  if (!service.options().enable_abort)
    throw ApiError({501, "aborting is off: start the server with --enable-abort-handling", {}, {}});
  const Body body(request, abort_fields());
  if (body.flag("abort_all", false))
    service.requests().abort_all();
  else
    service.requests().abort(body.integer("session_id", -1));
  return {200, "", {}, ""};
}

}  // namespace lmdeploy
