// models/llama.cc -- Llama 1, 2, 3, 3.1, 3.2; Code Llama, Vicuna, Yi, SmolLM2, DeepSeek-LLM and -Coder.
// Source: config.json and model.safetensors.index.json of meta-llama/Llama-2-7b-hf, Llama-3.1-8B,
// Llama-3.2-1B; modeling_llama.py in transformers 4.51 (attention_bias covers q, k, v and o; mlp_bias gate,
// up and down).
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  const DecoderSpec s = read_llama_like(cfg);
  // Not a key of Llama; a Mistral file relabelled as Llama has it, and without the window its answers would
  // be wrong.
  const int64_t window = cfg.get("sliding_window", s.max_positions);
  if (window < s.max_positions)
    throw Error(ErrorCode::kUnsupported,
                cat(cfg.where(), ": sliding_window ", window, " is not supported for this architecture"));
  return s;
}

constexpr auto kWeights = llama_rules();

}  // namespace

const ModelFamily kLlama = {"LlamaForCausalLM", read_spec, kWeights, make_decoder};
/// The first conversions of Llama 1 (transformers before 4.28) spelled it so.
const ModelFamily kLlamaOldSpelling = {"LLaMAForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
