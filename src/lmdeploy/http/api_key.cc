#include "lmdeploy/http/api_key.h"

#include <string_view>

namespace lmdeploy::http {
namespace {

std::string_view bearer_key(const Headers& headers) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string* value = headers.find("Authorization");
  if (value == nullptr) return {};
  std::string_view text(*value);
  if (!equals_ignoring_case(text.substr(0, kScheme.size()), kScheme)) return {};
  text.remove_prefix(kScheme.size());
  while (text.starts_with(' ')) text.remove_prefix(1);
  return text;
}

bool equals_in_constant_time(std::string_view given, std::string_view key) {
  unsigned char difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i] ^ (key.empty() ? 0 : key[i % key.size()]));
  return difference == 0;
}

}  // namespace

bool has_key(const Headers& headers, const std::vector<std::string>& keys) {
  const std::string* plain = headers.find("x-api-key");
  const std::string_view given[] = {bearer_key(headers), plain == nullptr ? std::string_view() : *plain};
  bool found = false;
  for (const std::string& key : keys)
    for (const std::string_view one : given) found |= !key.empty() && equals_in_constant_time(one, key);
  return found;
}

}  // namespace lmdeploy::http
