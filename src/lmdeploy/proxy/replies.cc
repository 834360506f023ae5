#include "lmdeploy/proxy/replies.h"

#include <boost/json.hpp>

#include "lmdeploy/http/error_format.h"

namespace lmdeploy::proxy {
namespace {

bool is_anthropic(const http::Request& request) {
  return http::error_format(request) == http::ErrorFormat::kAnthropic;
}

http::Response refusal(const JsonObject& body, int status) {
  http::Response response = json_reply(body, status);
  if (status == 401) response.headers.set("WWW-Authenticate", "Bearer");
  if (status == 503) response.headers.set("Retry-After", "1");
  return response;
}

}  // namespace

http::Response json_reply(const Json& value, int status) {
  http::Response response;
  response.status = status;
  response.body = to_json_text(value);
  return response;
}

http::Response error_reply(const http::Request& request, int status, const std::string& message,
                           const std::string& code, const std::string& param) {
  return refusal(is_anthropic(request) ? http::anthropic_error(status, message)
                                       : http::openai_error_body(status, message, param, code),
                 status);
}

void add_node_error(JsonObject& body, int error_code) {
  body["error_code"] = error_code;
  body["text"] = error_code == kModelGone ? "The request model name does not exist in the model list."
                                          : "Failed to get response after a period of time";
}

http::Response node_error_reply(const http::Request& request, int status, int error_code,
                                const std::string& message) {
  if (is_anthropic(request)) return error_reply(request, status, message);
  JsonObject body =
      http::openai_error_body(status, message, "", error_code == kModelGone ? "model_not_found" : "");
  add_node_error(body, error_code);
  return refusal(body, status);
}

}  // namespace lmdeploy::proxy
