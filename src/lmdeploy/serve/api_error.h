// What a client is told when its request fails: OpenAI's nested object, and LMDeploy's flat keys beside it;
// Anthropic's clients get their own (http/error_format.h).
#pragma once

#include <stdexcept>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/http/exchange.h"

namespace lmdeploy {

struct ApiErrorInfo {
  int status = 400;
  std::string message;
  std::string param;  // the request's field; empty: null
  std::string code;   // "model_not_found", ...; empty: the status's usual one
  int retry_after_s = 0;
  std::string allow = {};  // with 405: the methods that there are
};

/// Thrown by whatever reads or runs a request.
class ApiError : public std::runtime_error {
 public:
  explicit ApiError(ApiErrorInfo info) : std::runtime_error(info.message), info_(std::move(info)) {}
  const ApiErrorInfo& info() const { return info_; }

 private:
  ApiErrorInfo info_;
};

/// 400 that names the field.
[[noreturn]] void refuse_field(const std::string& param, const std::string& message);

/// The status of each ErrorCode; a message that begins with "gen_config.NAME" names its field.
ApiErrorInfo to_api_error(ErrorCode code, const std::string& message);
ApiErrorInfo server_ends(const http::ServerEnds& ends);
/// Of the exception that is being handled.
ApiErrorInfo current_api_error();

JsonObject error_object(const ApiErrorInfo& info);
/// {"error": {...}, "object": "error", "message", "code", ...}, or what Anthropic's clients understand where
/// the request's path is one of theirs.
http::Response error_response(const http::Request& request, const ApiErrorInfo& info);

}  // namespace lmdeploy
