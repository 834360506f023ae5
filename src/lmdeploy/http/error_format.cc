#include "lmdeploy/http/error_format.h"

#include <string_view>

namespace lmdeploy::http {
namespace {

bool is_under(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) &&
         (path.size() == folder.size() || path[folder.size()] == '/' || path[folder.size()] == '?');
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

JsonObject anthropic_error(int status, const std::string& message) {
  return {{"type", "error"}, {"error", JsonObject{{"type", anthropic_type(status)}, {"message", message}}}};
}

}  // namespace lmdeploy::http
