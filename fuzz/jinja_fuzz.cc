// Chat templates from untrusted checkpoints: any bytes parse and render, or end in an Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/template.h"

namespace {

lmdeploy::JsonObject make_variables() {
  return lmdeploy::parse_json(R"({
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "documents": null,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "messages": [
      {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße, 世界! 🎉\n"},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, null]}}}]},
      {"role": "tool", "content": "{\"t\": 21}"}, {"role": "user", "content": [{"type": "text", "text": "t"}]}]})",
                              "fuzz")
      .get_object();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lmdeploy::JsonObject kVariables = make_variables();
  try {
    const lmdeploy::jinja::Template jinja(std::string(reinterpret_cast<const char*>(data), size));
    std::string out;
    jinja.try_render(kVariables, out);
  } catch (const lmdeploy::Error&) {  // a syntax error
  }
  return 0;
}
