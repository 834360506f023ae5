// One HTTP request as handlers see it, and the answer they give. Knows no sockets.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lmdeploy::http {

/// Names in the order they came; looked up in any case (RFC 9110, 5.1).
class Headers {
 public:
  using Field = std::pair<std::string, std::string>;

  /// The first value of that name; nullptr: there is none.
  const std::string* find(std::string_view name) const;
  void add(std::string name, std::string value) { fields_.emplace_back(std::move(name), std::move(value)); }
  /// Instead of all values of that name.
  void set(std::string_view name, std::string value);
  void remove(std::string_view name);
  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::vector<Field> fields_;
};

/// Equal but for the case of ASCII letters.
bool equals_ignoring_case(std::string_view a, std::string_view b);

/// "/sleep?level=1&tags=a&tags=b", with or without "http://host" before it, percent-decoded.
struct Target {
  std::string path;
  std::vector<std::pair<std::string, std::string>> query;

  /// The first value of that name; nullptr: there is none.
  const std::string* find(std::string_view name) const;
};
/// Throws Error(kInvalidData) for a broken escape, or bytes that are not UTF-8 or are 0.
Target parse_target(std::string_view target);

struct Request {
  std::string method;  // upper case
  std::string target;  // as it came
  Target url;
  Headers headers;
  std::string body;
  std::string id;      // of x-request-id, else made here: for the answer and the log
  std::string client;  // address and port
  std::chrono::steady_clock::time_point arrival = {};  // of its head
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";  // empty: no such header
  Headers headers;
  std::string body;
};

/// "Not Found", ...; "Unknown" for a status without a name.
std::string_view reason_phrase(int status);

}  // namespace lmdeploy::http
