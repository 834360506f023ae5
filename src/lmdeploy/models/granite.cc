// models/granite.cc -- Granite 3 (dense).
// Source: config.json of ibm-granite/granite-3.1-8b-instruct; modeling_granite.py in transformers 4.51: Llama
// with four factors.
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg);
  s.embedding_scale = read_factor(cfg, "embedding_multiplier", 1);
  s.attention_scale = read_factor(cfg, "attention_multiplier", 1);
  s.residual_scale = read_factor(cfg, "residual_multiplier", 1);
  const float divisor = read_factor(cfg, "logits_scaling", 1);
  if (divisor == 0)
    throw Error(ErrorCode::kInvalidData,
                cat(cfg.where(), ": logits_scaling is 0, expected a number above 0"));
  s.logit_scale = 1 / divisor;
  return s;
}

constexpr WeightTable kWeights[] = {{"", llama::kRules}};

}  // namespace

const ModelFamily kGranite = {"GraniteForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
