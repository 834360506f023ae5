#include "lmdeploy/serve/api_keys.h"

#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {
namespace {

bool equal_in_constant_time(std::string_view given, std::string_view key) {
  size_t difference = given.size() ^ key.size();
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<size_t>(static_cast<uint8_t>(given[i]) ^
                                      (key.empty() ? 0xFF : static_cast<uint8_t>(key[i % key.size()])));
  return difference == 0;
}

std::string_view given_key(const http::Request& request) {
  if (const std::string* key = request.headers.find("x-api-key")) return *key;
  const std::string* value = request.headers.find("Authorization");
  if (value == nullptr) return {};
  std::string_view text(*value);
  constexpr std::string_view kScheme = "bearer ";
  if (text.size() < kScheme.size() || !http::equals_ignoring_case(text.substr(0, kScheme.size()), kScheme))
    return {};
  text.remove_prefix(kScheme.size());
  while (text.starts_with(' ')) text.remove_prefix(1);
  return text;
}

}  // namespace

void check_api_key(const http::Request& request, const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  const std::string_view given = given_key(request);
  bool known = false;
  for (const std::string& key : keys) known = equal_in_constant_time(given, key) || known;
  if (!known) throw ApiError({401, "Please request with valid api key!", {}, "invalid_api_key"});
}

}  // namespace lmdeploy
