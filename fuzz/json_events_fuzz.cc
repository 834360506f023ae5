// Streams of JSON: the values do not depend on where the bytes were cut, and what is wrong is an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json_events.h"

namespace {

std::string values_of(std::string_view text, size_t piece) {
  std::string found;
  lmdeploy::JsonEvents events("input");
  try {
    for (size_t at = 0; at < text.size(); at += piece)
      events.push(text.substr(at, piece),
                  [&](const lmdeploy::Json& value) { found += lmdeploy::to_json_text(value) + ";"; });
  } catch (const lmdeploy::Error&) {
    found += "error";
  }
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string whole = values_of(text, size + 1);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}})
    if (values_of(text, piece) != whole) std::abort();
  return 0;
}
