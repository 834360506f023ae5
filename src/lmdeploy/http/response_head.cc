#include "lmdeploy/http/response_head.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "lmdeploy/core/error.h"

namespace lmdeploy::http {
namespace {

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%s, %02d %s %d %02d:%02d:%02d GMT", kDays[utc.tm_wday],
                utc.tm_mday, kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return text.data();
}

void add_line(std::string& head, std::string_view name, std::string_view value) {
  if (name.find_first_of(":\r\n") != std::string_view::npos) return;
  head += name;
  head += ": ";
  head += value.substr(0, value.find_first_of("\r\n"));
  head += "\r\n";
}

bool contains(const std::vector<std::string>& list, std::string_view value) {
  return std::any_of(list.begin(), list.end(),
                     [&](const std::string& item) { return item == "*" || item == value; });
}

bool has_all(const std::vector<std::string>& list) {
  return std::find(list.begin(), list.end(), "*") != list.end();
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& item : list) text += (text.empty() ? "" : ", ") + item;
  return text;
}

/// With credentials no "*" may stand in the answer; the origin itself may.
void add_origin(Headers& headers, const std::string& origin, const CorsOptions& cors) {
  if (!contains(cors.origins, origin)) return;
  const bool any = has_all(cors.origins) && !cors.credentials;
  headers.set("Access-Control-Allow-Origin", any ? "*" : origin);
  if (!any) headers.add("Vary", "Origin");
  if (cors.credentials) headers.set("Access-Control-Allow-Credentials", "true");
}

}  // namespace

std::string response_head(const Response& response, const Request& request, const CorsOptions& cors,
                          HeadOptions options) {
  Headers headers = response.headers;
  if (const std::string* origin = request.headers.find("Origin")) add_origin(headers, *origin, cors);
  std::string head = cat("HTTP/1.1 ", response.status, " ", reason_phrase(response.status), "\r\n");
  add_line(head, "Date", http_date());
  add_line(head, "Server", "lmdeploy");
  if (!request.id.empty()) add_line(head, "X-Request-Id", request.id);
  if (!response.content_type.empty()) add_line(head, "Content-Type", response.content_type);
  for (const auto& [name, value] : headers.fields()) add_line(head, name, value);
  if (may_have_body(response.status)) {
    if (options.framing == Framing::kChunked) add_line(head, "Transfer-Encoding", "chunked");
    if (options.framing == Framing::kLength)
      add_line(head, "Content-Length", std::to_string(response.body.size()));
  }
  add_line(head, "Connection", options.keep_alive ? "keep-alive" : "close");
  return head + "\r\n";
}

bool may_have_body(int status) { return status >= 200 && status != 204 && status != 304; }

bool is_preflight(const Request& request) {
  return request.method == "OPTIONS" && request.headers.find("Origin") != nullptr &&
         request.headers.find("Access-Control-Request-Method") != nullptr;
}

Response preflight_response(const Request& request, const CorsOptions& cors) {
  Response response;
  response.status = 204;
  response.content_type.clear();
  if (!contains(cors.origins, *request.headers.find("Origin"))) {
    response.status = 403;
    return response;
  }
  const std::string* headers = request.headers.find("Access-Control-Request-Headers");
  response.headers.set("Access-Control-Allow-Methods", has_all(cors.methods)
                                                           ? "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
                                                           : joined(cors.methods));
  if (has_all(cors.headers) && headers != nullptr)
    response.headers.set("Access-Control-Allow-Headers", *headers);
  if (!has_all(cors.headers)) response.headers.set("Access-Control-Allow-Headers", joined(cors.headers));
  response.headers.set("Access-Control-Max-Age", "600");
  return response;
}

}  // namespace lmdeploy::http
