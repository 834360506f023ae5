// The head of an answer as bytes.
#pragma once

#include <string>

#include "lmdeploy/http/server.h"

namespace lmdeploy::http {

enum class Framing { kLength, kChunked, kUntilClose };

struct HeadOptions {
  Framing framing = Framing::kLength;
  bool keep_alive = true;
};

/// Status line to the empty line, with date, request id, length and the CORS headers that `request` asks for.
/// Values with line ends in them lose what follows, and such names are left out: no header is smuggled in.
std::string response_head(const Response& response, const Request& request, const CorsOptions& cors,
                          HeadOptions options);

/// 204, 304 and those before an answer are heads only (RFC 9112, 6.3).
bool may_have_body(int status);

/// Whether a browser asks what it may do.
bool is_preflight(const Request& request);
Response preflight_response(const Request& request, const CorsOptions& cors);

}  // namespace lmdeploy::http
