// The regular expressions by which well-known models cut text into words, written out by hand: the same
// matches as from the regex engine, in a fraction of the time.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "lmdeploy/text/unicode/pattern.h"

namespace lmdeploy {

/// The scanner for exactly this expression; nullptr when there is none.
std::unique_ptr<Pattern> make_word_scanner(std::string_view regex);
/// All expressions that have one.
std::vector<std::string_view> word_scanner_regexes();

}  // namespace lmdeploy
