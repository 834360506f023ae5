#include "lmdeploy/serve/pages.h"

#include <algorithm>
#include <array>

#include "lmdeploy/core/error.h"
#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {
namespace {

struct PageAddress {
  std::string_view path, file;
  bool of_docs = false;
};

constexpr std::string_view kFolder = "/pages/";
// Paths of pages; /pages/NAME are the files that they load.
constexpr std::array kAddresses = {PageAddress{"/", "docs.html", true},
                                   PageAddress{"/redoc", "redoc.html", true},
                                   PageAddress{"/ui", "chat.html", false}};
constexpr std::array<std::string_view, 7> kDocFiles = {
    "docs.js",        "docs.css",           "docs.html", "redoc.html", "swagger-ui-bundle.js",
    "swagger-ui.css", "redoc.standalone.js"};

// Nothing from elsewhere, no inline scripts, no frames around the page.
constexpr std::string_view kStrictPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
// Swagger UI and ReDoc write styles into the page; ReDoc searches in a worker that it makes itself.
constexpr std::string_view kDocsPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; worker-src blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

std::string_view content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  LMD_CHECK(name.ends_with(".svg"), name);
  return "image/svg+xml";
}

std::optional<Page> page_of_file(std::string_view name, bool of_docs) {
  for (const EmbeddedFile& file : embedded_files())
    if (file.name == name) return Page{&file, content_type_of(name), of_docs ? kDocsPolicy : kStrictPolicy};
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Takes what stands before `separator` off `list`.
std::string_view next_item(std::string_view& list, char separator) {
  const size_t end = std::min(list.find(separator), list.size());
  const std::string_view item = trimmed(list.substr(0, end));
  list.remove_prefix(std::min(end + 1, list.size()));
  return item;
}

/// "q=0", "q=0.0", ...: not at all.
bool is_refused(std::string_view parameters) {
  while (!parameters.empty()) {
    std::string_view value = next_item(parameters, ';');
    const std::string_view name = next_item(value, '=');
    if (http::equals_ignoring_case(name, "q"))
      return !value.empty() && trimmed(value).find_first_not_of("0.") == std::string_view::npos;
  }
  return false;
}

std::string etag_of(const EmbeddedFile& file) { return cat("W/\"", file.hash, "\""); }

http::Response page_head(const Page& page) {
  http::Response response;
  response.content_type = page.content_type;
  response.headers.add("Content-Security-Policy", std::string(page.policy));
  response.headers.add("X-Content-Type-Options", "nosniff");
  response.headers.add("Referrer-Policy", "no-referrer");
  response.headers.add("Cache-Control",
                       "no-cache");  // asked again each time, and then mostly answered by 304
  response.headers.add("Vary", "Accept-Encoding");
  response.headers.add("ETag", etag_of(*page.file));
  return response;
}

}  // namespace

std::optional<Page> find_page(std::string_view path, bool with_docs) {
  for (const PageAddress& address : kAddresses)
    if (address.path == path)
      return address.of_docs && !with_docs ? std::nullopt : page_of_file(address.file, address.of_docs);
  if (!path.starts_with(kFolder)) return std::nullopt;
  path.remove_prefix(kFolder.size());
  const bool of_docs = std::find(kDocFiles.begin(), kDocFiles.end(), path) != kDocFiles.end();
  return of_docs && !with_docs ? std::nullopt : page_of_file(path, of_docs);
}

bool accepts_gzip(std::string_view accept_encoding) {
  std::optional<bool> named, any;
  while (!accept_encoding.empty()) {
    std::string_view parameters = next_item(accept_encoding, ',');
    const std::string_view coding = next_item(parameters, ';');
    if (http::equals_ignoring_case(coding, "gzip") || http::equals_ignoring_case(coding, "x-gzip"))
      named = !is_refused(parameters);
    if (coding == "*") any = !is_refused(parameters);
  }
  return named.value_or(any.value_or(false));
}

bool matches_etag(std::string_view if_none_match, std::string_view etag) {
  const auto opaque = [](std::string_view tag) { return tag.starts_with("W/") ? tag.substr(2) : tag; };
  while (!if_none_match.empty()) {
    const std::string_view tag = next_item(if_none_match, ',');
    if (tag == "*" || opaque(tag) == opaque(etag)) return true;
  }
  return false;
}

http::Task<> serve_page(Page page, http::Exchange& exchange) {
  const http::Request& request = exchange.request();
  if (request.method != "GET" && request.method != "HEAD") {
    ApiErrorInfo info{405, cat(request.method, " ", request.url.path, ": expected GET"), {}, {}};
    info.allow = "GET, HEAD";
    throw ApiError(info);
  }
  http::Response response = page_head(page);
  const std::string* known = request.headers.find("If-None-Match");
  const std::string* codings = request.headers.find("Accept-Encoding");
  if (known != nullptr && matches_etag(*known, etag_of(*page.file))) {
    response.status = 304;
  } else if (codings != nullptr && accepts_gzip(*codings)) {
    response.headers.add("Content-Encoding", "gzip");
    response.body = page.file->gzip;
  } else {
    co_await exchange.offload([&] { response.body = unpacked(*page.file); });
  }
  co_await exchange.respond(std::move(response));
}

}  // namespace lmdeploy
