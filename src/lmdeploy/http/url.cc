#include <charconv>

#include "lmdeploy/core/error.h"
#include "lmdeploy/http/client.h"

namespace lmdeploy::http {
namespace {

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw Error(ErrorCode::kInvalidArgument, cat("URL \"", text.substr(0, 200), "\": ", why,
                                               "; expected http://HOST:PORT or https://HOST:PORT"));
}

int parse_port(std::string_view text, std::string_view url) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535)
    refuse(url, cat("\"", text, "\" is not a port"));
  return port;
}

bool may_stand_in_url(char c) { return c > ' ' && c < 0x7f && c != '"' && c != '<' && c != '>' && c != '\\'; }

/// host, host:port or [v6]:port
void parse_authority(std::string_view text, std::string_view whole, Url& url) {
  if (text.find('@') != std::string_view::npos) refuse(whole, "names and passwords are not taken");
  const size_t bracket = text.rfind(']');
  const size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) url.port = parse_port(text.substr(colon + 1), whole);
  text = text.substr(0, colon);
  if (!text.empty() && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  if (text.empty() || text.find_first_of("[]") != std::string_view::npos) refuse(whole, "there is no host");
  url.host = text;
}

}  // namespace

Url parse_url(std::string_view text) {
  Url url;
  std::string_view rest = text;
  if (equals_ignoring_case(rest.substr(0, 7), "http://")) {
    rest.remove_prefix(7);
  } else if (equals_ignoring_case(rest.substr(0, 8), "https://")) {
    rest.remove_prefix(8);
    url.tls = true;
    url.port = 443;
  } else {
    refuse(text, "no http:// or https:// at its beginning");
  }
  for (const char c : rest)
    if (!may_stand_in_url(c)) refuse(text, "a character that no URL has");
  if (rest.find_first_of("?#") != std::string_view::npos) refuse(text, "queries and fragments are not taken");
  const size_t slash = std::min(rest.find('/'), rest.size());
  parse_authority(rest.substr(0, slash), text, url);
  url.path = rest.substr(slash);
  while (!url.path.empty() && url.path.back() == '/') url.path.pop_back();
  return url;
}

std::string origin(const Url& url) {
  const bool brackets = url.host.find(':') != std::string::npos;
  return cat(url.tls ? "https://" : "http://", brackets ? "[" : "", url.host, brackets ? "]" : "", ":",
             url.port);
}

}  // namespace lmdeploy::http
