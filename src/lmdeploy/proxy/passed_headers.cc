#include "lmdeploy/proxy/passed_headers.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace lmdeploy::proxy {
namespace {

using http::Headers;
using Names = std::initializer_list<const char*>;

/// Of one connection only (RFC 9110, 7.6.1). A length is made anew.
constexpr Names kOfConnection = {
    "Connection", "Keep-Alive",        "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "TE",
    "Trailer",    "Transfer-Encoding", "Upgrade",          "Content-Length"};

void remove_all(Headers& headers, Names names) {
  for (const char* name : names) headers.remove(name);
}

/// Those that the sender names in "Connection", too.
void remove_connection(Headers& headers) {
  if (const std::string* named = headers.find("Connection")) {
    std::string list = *named;
    std::replace(list.begin(), list.end(), ',', ' ');
    for (size_t at = list.find_first_not_of(' '); at != std::string::npos;
         at = list.find_first_not_of(' ', at)) {
      const size_t end = std::min(list.find(' ', at), list.size());
      headers.remove(list.substr(at, end - at));
      at = end;
    }
  }
  remove_all(headers, kOfConnection);
}

void append(Headers& headers, const char* name, const std::string& value) {
  const std::string* before = headers.find(name);
  headers.set(name, before == nullptr ? value : *before + ", " + value);
}

}  // namespace

Headers headers_to_node(const http::Request& request, bool tls, const std::string& name) {
  Headers headers = request.headers;
  const std::string* host = request.headers.find("Host");
  remove_connection(headers);
  remove_all(headers, {"Host", "Expect"});
  append(headers, "X-Forwarded-For", request.client.substr(0, request.client.rfind(':')));
  if (host != nullptr) headers.set("X-Forwarded-Host", *host);
  headers.set("X-Forwarded-Proto", tls ? "https" : "http");
  headers.set("X-Request-Id", request.id);
  add_via(headers, name);
  return headers;
}

Headers headers_to_client(const Headers& from_node) {
  Headers headers = from_node;
  remove_connection(headers);
  remove_all(headers, {"Content-Type", "Date", "Server", "X-Request-Id"});
  for (const auto& [name, value] : from_node.fields())
    if (http::equals_ignoring_case(std::string_view(name).substr(0, 15), "access-control-"))
      headers.remove(name);
  return headers;
}

void add_via(Headers& headers, const std::string& name) { headers.add("Via", "1.1 " + name); }

bool has_passed(const Headers& headers, const std::string& name) {
  const auto& fields = headers.fields();
  return std::any_of(fields.begin(), fields.end(), [&](const Headers::Field& field) {
    return http::equals_ignoring_case(field.first, "Via") && field.second.find(name) != std::string::npos;
  });
}

}  // namespace lmdeploy::proxy
