// Names and values read from files, made fit for a message.
#pragma once

#include <string>
#include <string_view>

namespace lmdeploy {

/// `text` in double quotes; bytes that are not printable ASCII become \xNN, and what is longer than 80 bytes
/// is cut, so that a hostile name can neither garble nor flood a log.
std::string quote(std::string_view text);

}  // namespace lmdeploy
