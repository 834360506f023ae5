#include "lmdeploy/proxy/api_key.h"

#include <string_view>

namespace lmdeploy::proxy {
namespace {

std::string_view given_key(const http::Headers& headers) {
  if (const std::string* authorization = headers.find("Authorization")) {
    const std::string_view text = *authorization;
    if (http::equals_ignoring_case(text.substr(0, 7), "Bearer ")) return text.substr(7);
  }
  const std::string* key = headers.find("x-api-key");
  return key == nullptr ? std::string_view() : *key;
}

bool equals_in_constant_time(std::string_view given, std::string_view key) {
  unsigned char difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i] ^ (key.empty() ? 0 : key[i % key.size()]));
  return difference == 0;
}

}  // namespace

bool has_key(const http::Headers& headers, const std::vector<std::string>& keys) {
  const std::string_view given = given_key(headers);
  bool found = false;
  for (const std::string& key : keys) found |= !key.empty() && equals_in_constant_time(given, key);
  return found;
}

}  // namespace lmdeploy::proxy
