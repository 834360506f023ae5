#include "lmdeploy/http/request_id.h"

#include <algorithm>
#include <string_view>

#include "lmdeploy/core/random.h"

namespace lmdeploy::http {
namespace {

std::string random_text(size_t length, std::string_view alphabet) {
  std::string text(length, '0');
  uint64_t bits = 0;
  for (size_t i = 0; i < length; ++i) {
    if (i % 8 == 0) bits = entropy_bits();
    text[i] = alphabet[bits % alphabet.size()];
    bits >>= 7;
  }
  return text;
}

bool may_stand_in_id(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
         c == '.' || c == ':';
}

}  // namespace

std::string request_id(const Headers& headers) {
  const std::string* given = headers.find("x-request-id");
  if (given != nullptr && !given->empty() && given->size() <= 128 &&
      std::all_of(given->begin(), given->end(), may_stand_in_id))
    return *given;
  return random_text(32, "0123456789abcdef");
}

std::string random_name(size_t length) {
  return random_text(length, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
}

}  // namespace lmdeploy::http
