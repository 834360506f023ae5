// models/minicpm.cc -- MiniCPM 1B, 2B; MiniCPM4.
// Source: config.json, configuration_minicpm.py and modeling_minicpm.py of openbmb/MiniCPM-2B-sft-bf16: Llama
// with factors that keep hidden states of models of all widths and depths at one size (Hu et al. 2024,
// section 3).
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.default_tied = true});
  if (cfg.get("num_experts", int64_t{0}) > 0)
    throw Error(ErrorCode::kUnsupported, cat(cfg.where(), ": MiniCPM with experts is not supported"));
  s.embedding_scale = read_factor(cfg, "scale_emb", 1);
  s.residual_scale = read_factor(cfg, "scale_depth", 1) / std::sqrt(static_cast<float>(s.num_layers));
  s.logit_scale = read_factor(cfg, "dim_model_base", 1) / static_cast<float>(s.hidden_size);
  return s;
}

constexpr WeightTable kWeights[] = {{"", llama::kRules}};

}  // namespace

const ModelFamily kMiniCpm = {"MiniCPMForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
