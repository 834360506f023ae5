// models/smollm3.cc -- SmolLM3 3B.
// Source: config.json of HuggingFaceTB/SmolLM3-3B; modeling_smollm3.py in transformers 4.53: Llama, but some
// layers do without rope.
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

// `no_rope_layers` holds 1 for a layer with rope; without it every `no_rope_layer_interval`-th layer has
// none.
DecoderSpec read_spec(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.default_rope = {.theta = 2e6},
                                        .default_kv_heads = 4,
                                        .default_max_positions = 32768,
                                        .default_tied = true});
  if (cfg.get("use_sliding_window", false)) read_windows(cfg, s);
  const std::vector<int> with_rope = int_list(cfg, "no_rope_layers");
  if (!with_rope.empty() && with_rope.size() != s.layers.size())
    throw Error(ErrorCode::kInvalidData, cat(cfg.where(), ": \"no_rope_layers\" has ", with_rope.size(),
                                             " entries, expected ", s.num_layers));
  const int64_t interval = read_size_or(cfg, "no_rope_layer_interval", 4);
  for (size_t l = 0; l < s.layers.size(); ++l)
    s.layers[l].rope = with_rope.empty() ? (static_cast<int64_t>(l) + 1) % interval != 0 : with_rope[l] != 0;
  return s;
}

constexpr WeightTable kWeights[] = {{"", llama::kRules}};

}  // namespace

const ModelFamily kSmolLm3 = {"SmolLM3ForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
