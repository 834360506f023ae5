// models/llama.cc -- Llama 1, 2, 3, 3.1, 3.2; Code Llama, Vicuna, Yi, SmolLM2, DeepSeek-LLM and -Coder.
// Source: config.json and model.safetensors.index.json of meta-llama/Llama-2-7b-hf, Llama-3.1-8B,
// Llama-3.2-1B; modeling_llama.py in transformers 4.51 (attention_bias covers q, k, v and o; mlp_bias gate,
// up and down).
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg);
  read_windows(cfg, s);  // no key of Llama; a Mistral file relabelled as Llama has it
  return s;
}

constexpr WeightTable kWeights[] = {{"", llama::kRules}};

}  // namespace

const ModelFamily kLlama = {"LlamaForCausalLM", read_spec, kWeights, make_decoder};
/// The first conversions of Llama 1 (transformers before 4.28) spelled it so.
const ModelFamily kLlamaOldSpelling = {"LLaMAForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
