#include "lmdeploy/serve/api_error.h"

#include <algorithm>

#include "lmdeploy/http/error_format.h"
#include "lmdeploy/http/exchange.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kFieldPrefix = "gen_config.";

/// The path that begins a message: "messages[0].content: found null; ...".
std::string path_of(const std::string& message) {
  constexpr std::string_view kRoots[] = {"messages", "tools", "tool_choice", "prompt",
                                         "continue_final_message"};
  const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789[].");
  if (end == std::string::npos || message[end] != ':') return {};
  const std::string path = message.substr(0, end);
  const std::string root = path.substr(0, path.find_first_of("[."));
  return std::find(std::begin(kRoots), std::end(kRoots), root) == std::end(kRoots) ? std::string() : path;
}

std::string field_of(const std::string& message) {
  if (!message.starts_with(kFieldPrefix)) return path_of(message);
  const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", kFieldPrefix.size());
  return message.substr(kFieldPrefix.size(), end == std::string::npos ? end : end - kFieldPrefix.size());
}

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInvalidData:
    case ErrorCode::kUnsupported:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kBusy:
      return 409;
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kClosed:
      return 503;
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

}  // namespace

void refuse_field(const std::string& param, const std::string& message) {
  throw ApiError({400, message, param, {}});
}

ApiErrorInfo to_api_error(ErrorCode code, const std::string& message) {
  ApiErrorInfo info{status_of(code), message, field_of(message), {}};
  // A request has its fields at its top.
  if (info.message.starts_with(kFieldPrefix) && !info.param.empty())
    info.message.erase(0, kFieldPrefix.size());
  if (code == ErrorCode::kUnsupported) info.code = "unsupported_feature";
  if (info.status == 503) info.retry_after_s = 1;
  return info;
}

ApiErrorInfo server_ends(const http::ServerEnds& ends) { return {503, ends.what(), {}, {}, 2}; }

ApiErrorInfo current_api_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error.info();
  } catch (const http::ServerEnds& ends) {
    return server_ends(ends);
  } catch (const Error& error) {
    return to_api_error(error.code(), error.what());
  } catch (const std::exception& error) {
    return {500, describe(error), {}, {}};
  }
}

JsonObject error_object(const ApiErrorInfo& info) {
  return http::openai_error(info.status, info.message, info.param, info.code);
}

http::Response error_response(const http::Request& request, const ApiErrorInfo& info) {
  http::Response response;
  response.status = info.status;
  response.body =
      to_json_text(http::error_format(request) == http::ErrorFormat::kAnthropic
                       ? http::anthropic_error(info.status, info.message)
                       : http::openai_error_body(info.status, info.message, info.param, info.code));
  if (info.status == 401) response.headers.add("WWW-Authenticate", "Bearer");
  if (!info.allow.empty()) response.headers.add("Allow", info.allow);
  if (info.retry_after_s > 0) response.headers.add("Retry-After", std::to_string(info.retry_after_s));
  return response;
}

}  // namespace lmdeploy
