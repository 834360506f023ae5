#include "lmdeploy/http/message.h"

#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy::http {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char letter = lower(c);
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

std::string percent_decoded(std::string_view text, bool plus_is_blank) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_blank) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = high < 0 ? -1 : hex_digit(text[i + 2]);
      if (low < 0)
        throw Error(ErrorCode::kInvalidData, cat("request target: the escape at byte ", i,
                                                 " is broken; expected % and two hex digits"));
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  if (!is_utf8(out) || out.find('\0') != std::string::npos)
    throw Error(ErrorCode::kInvalidData, "request target: holds bytes that are not UTF-8 text");
  return out;
}

/// What a client sends to a proxy, and every server must take (RFC 9112, 3.2.2).
std::string_view without_authority(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!equals_ignoring_case(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    return target.empty() ? "/" : target;
  }
  return target;
}

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

const std::string* Headers::find(std::string_view name) const {
  for (const Field& field : fields_)
    if (equals_ignoring_case(field.first, name)) return &field.second;
  return nullptr;
}

void Headers::set(std::string_view name, std::string value) {
  remove(name);
  add(std::string(name), std::move(value));
}

void Headers::remove(std::string_view name) {
  std::erase_if(fields_, [&](const Field& field) { return equals_ignoring_case(field.first, name); });
}

const std::string* Target::find(std::string_view name) const {
  for (const auto& [key, value] : query)
    if (key == name) return &value;
  return nullptr;
}

Target parse_target(std::string_view target) {
  Target parsed;
  target = without_authority(target);
  const size_t question = target.find('?');
  parsed.path = percent_decoded(target.substr(0, question), /*plus_is_blank=*/false);
  if (question == std::string_view::npos) return parsed;
  std::string_view rest = target.substr(question + 1);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view value = equals < pair.size() ? pair.substr(equals + 1) : std::string_view();
    parsed.query.emplace_back(percent_decoded(pair.substr(0, equals), true), percent_decoded(value, true));
  }
  return parsed;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 508:
      return "Loop Detected";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

}  // namespace lmdeploy::http
