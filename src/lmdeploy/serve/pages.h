// The pages that people open in a browser: the interface's description, the chat page, and their files.
#pragma once

#include <optional>
#include <string_view>

#include "lmdeploy/http/exchange.h"
#include "lmdeploy/serve/embedded_file.h"

namespace lmdeploy {

struct Page {
  const EmbeddedFile* file;
  std::string_view content_type;
  std::string_view policy;  // Content-Security-Policy
};

/// What `path` shows; nothing: no page. `with_docs`: whether the description is shown too.
std::optional<Page> find_page(std::string_view path, bool with_docs);

/// Whether an Accept-Encoding header allows gzip (RFC 9110, 12.5.3).
bool accepts_gzip(std::string_view accept_encoding);
/// Whether an If-None-Match header has that tag, as "W/" compares (RFC 9110, 13.1.2).
bool matches_etag(std::string_view if_none_match, std::string_view etag);

/// Throws ApiError 405 for other methods than GET and HEAD.
http::Task<> serve_page(Page page, http::Exchange& exchange);

}  // namespace lmdeploy
