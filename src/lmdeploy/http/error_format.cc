#include "lmdeploy/http/error_format.h"

#include <string_view>

namespace lmdeploy::http {
namespace {

bool is_under(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) &&
         (path.size() == folder.size() || path[folder.size()] == '/' || path[folder.size()] == '?');
}

const char* usual_code(int status) {
  switch (status) {
    case 401:
      return "invalid_api_key";
    case 404:
      return "not_found";
    case 405:
      return "method_not_allowed";
    case 408:
      return "request_timeout";
    case 409:
      return "request_conflict";
    case 413:
      return "request_too_large";
    case 415:
      return "unsupported_media_type";
    case 499:
      return "request_cancelled";
    case 501:
      return "unsupported_feature";
    case 502:
    case 503:
    case 504:
      return "engine_unavailable";
    case 508:
      return "loop_detected";
    default:
      return status < 500 ? "invalid_request" : "internal_error";
  }
}

const char* openai_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 404) return "not_found_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

const char* anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ErrorFormat error_format(const Request& request) {
  const std::string_view path = request.url.path.empty() ? request.target : request.url.path;
  const bool anthropic = is_under(path, "/v1/messages") || is_under(path, "/anthropic");
  return anthropic ? ErrorFormat::kAnthropic : ErrorFormat::kOpenAi;
}

JsonObject openai_error(int status, const std::string& message, const std::string& param,
                        const std::string& code) {
  JsonObject error;
  error["message"] = message;
  error["type"] = openai_type(status);
  error["param"] = param.empty() ? Json(nullptr) : Json(param);
  error["code"] = code.empty() ? usual_code(status) : code;
  return error;
}

JsonObject openai_error_body(int status, const std::string& message, const std::string& param,
                             const std::string& code) {
  JsonObject error = openai_error(status, message, param, code);
  JsonObject body;
  body["object"] = "error";
  body["message"] = message;
  body["type"] = error["type"];
  body["param"] = error["param"];
  body["code"] = status;
  body["error"] = std::move(error);
  return body;
}

JsonObject failed_response(JsonObject response, const std::string& message) {
  JsonObject error;
  error["code"] = "server_error";
  error["message"] = message;
  response["status"] = "failed";
  response["error"] = std::move(error);
  return response;
}

JsonObject anthropic_error(int status, const std::string& message) {
  return {{"type", "error"}, {"error", JsonObject{{"type", anthropic_type(status)}, {"message", message}}}};
}

}  // namespace lmdeploy::http
