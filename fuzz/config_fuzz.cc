// config.json and model.safetensors.index.json: parse, then ask ConfigReader for every key in every type.
#include <cstddef>
#include <cstdint>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/safetensors_index.h"

namespace {

using lmdeploy::ConfigReader;
using lmdeploy::Json;

// An Error is the expected outcome of a wrong kind.
template <typename Call>
void attempt(Call call) {
  try {
    call();
  } catch (const lmdeploy::Error&) {
  }
}

void read_everything(const Json& config, int depth) {
  const ConfigReader reader(config, "input");
  attempt([&] { reader.architecture(); });
  for (const auto& item : config.get_object()) {
    const std::string key(item.key());
    attempt([&] { reader.get(key, 1); });
    attempt([&] { reader.get(key, 1.5); });
    attempt([&] { reader.get(key, true); });
    attempt([&] { reader.get(key, "text"); });
    attempt([&] { reader.require_int(key); });
    attempt([&] { lmdeploy::token_ids_from(config, key, "input"); });
    attempt([&] { reader.object(key).architecture(); });
    if (depth > 0 && item.value().is_object()) read_everything(item.value(), depth - 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] { lmdeploy::parse_safetensors_index(text, "input"); });
  attempt([&] {
    const Json config = lmdeploy::parse_json(text, "input");
    if (config.is_object()) read_everything(config, /*depth=*/3);
  });
  return 0;
}
