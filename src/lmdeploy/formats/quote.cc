#include "lmdeploy/formats/quote.h"

namespace lmdeploy {

std::string quote(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out + (text.size() > kMaxShown ? "...\"" : "\"");
}

}  // namespace lmdeploy
