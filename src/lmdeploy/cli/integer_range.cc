#include "lmdeploy/cli/integer_range.h"

#include <charconv>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

CLI::Validator integer_in(int64_t min, int64_t max) {
  const auto check = [min, max](std::string& text) -> std::string {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, value);
    if (failure != std::errc() || stop != end || value < min || value > max)
      return cat(text, " is not an integer from ", min, " to ", max);
    text = std::to_string(value);
    return "";
  };
  return CLI::Validator(check, "");
}

}  // namespace lmdeploy
