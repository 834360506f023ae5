// Refuses JSON in which an object names a key twice: the DOM parser silently keeps the last one.
#pragma once

#include <string_view>

namespace lmdeploy {

/// `text` is JSON that parse_json() accepts. Throws Error(kInvalidData) beginning with `where` and naming the
/// key.
void refuse_duplicate_keys(std::string_view text, std::string_view where);

}  // namespace lmdeploy
