// Columns of tables and numbers for people.
#pragma once

#include <string>
#include <string_view>

#include "lmdeploy/bench/measure.h"

namespace lmdeploy {

/// "3.10"
std::string fixed(double value, int digits);
/// Three significant digits, no exponent: "0.123", "12.3", "1234".
std::string three_digits(double value);
/// "12.3 (11.8-12.9)"
std::string to_text(const Spread& spread);
/// "512 MiB", "1.50 GiB"
std::string bytes_text(double bytes);

/// A line of a table, built column by column.
class TextLine {
 public:
  /// Widths are in bytes; longer text moves what follows.
  TextLine& left(std::string_view text, size_t width);
  TextLine& right(std::string_view text, size_t width);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace lmdeploy
