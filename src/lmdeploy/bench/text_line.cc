#include "lmdeploy/bench/text_line.h"

#include <cmath>
#include <cstdio>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string three_digits(double value) {
  const double size = std::abs(value);
  return fixed(value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3);
}

std::string to_text(const Spread& spread) {
  return cat(three_digits(spread.median), " (", three_digits(spread.min), "-", three_digits(spread.max), ")");
}

std::string bytes_text(double bytes) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  return bytes >= kGiB ? cat(fixed(bytes / kGiB, 2), " GiB") : cat(three_digits(bytes / kMiB), " MiB");
}

TextLine& TextLine::left(std::string_view text, size_t width) {
  text_ += text;
  if (text.size() < width) text_.append(width - text.size(), ' ');
  return *this;
}

TextLine& TextLine::right(std::string_view text, size_t width) {
  if (text.size() < width) text_.append(width - text.size(), ' ');
  text_ += text;
  return *this;
}

}  // namespace lmdeploy
