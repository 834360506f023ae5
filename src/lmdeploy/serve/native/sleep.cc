// POST /sleep, /wakeup, GET /is_sleeping: giving memory back between bursts of work.
#include "lmdeploy/core/log.h"
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/routes.h"

namespace lmdeploy {
namespace {

http::Response empty_response() {
  http::Response response;
  response.content_type.clear();
  return response;
}

void check_level(const http::Request& request) {
  const std::string* level = request.url.find("level");
  if (level != nullptr && *level != "1" && *level != "2")
    refuse_field("level", cat("level: found ", *level, "; expected 1 or 2"));
}

/// Whether the tags ask for weights and keys and values: nothing runs with one of them alone.
bool wants_all(const http::Request& request, Service& service) {
  bool any = false;
  for (const auto& [name, tag] : request.url.query) {
    if (name != "tags") continue;
    any = true;
    if (tag != "weights" && tag != "kv_cache")
      refuse_field("tags", cat("tags: found ", tag, "; expected weights or kv_cache"));
    service.note_wakeup_tag(tag);
  }
  return !any || service.has_all_wakeup_tags();
}

}  // namespace

http::Task<> sleep(Service& service, http::Exchange& exchange) {
  check_level(exchange.request());
  const std::shared_ptr<Pipeline> pipeline = service.fall_asleep();
  if (pipeline) co_await exchange.offload([&] { pipeline->close(); });
  co_await exchange.respond(empty_response());
}

http::Task<> wakeup(Service& service, http::Exchange& exchange) {
  if (wants_all(exchange.request(), service) && service.begin_waking()) {
    try {
      co_await exchange.offload([&] { service.set_ready(service.options().open_model()); });
    } catch (...) {
      service.set_state(ServiceState::kSleeping);
      throw;
    }
  }
  co_await exchange.respond(empty_response());
}

http::Response is_sleeping(Service& service, const http::Request&) {
  JsonObject body;
  body["is_sleeping"] = service.state() == ServiceState::kSleeping;
  return json_response(body);
}

http::Response not_implemented(Service&, const http::Request& request) {
  throw ApiError(
      {501,
       cat(request.url.path, ": not supported: ",
           request.url.path.starts_with("/distserve")
               ? "there is no split of prefill and decode; run whole servers behind `lmdeploy serve proxy`"
               : "weights do not change while a server runs; start one with the new checkpoint"),
       {},
       {}});
}

}  // namespace lmdeploy
