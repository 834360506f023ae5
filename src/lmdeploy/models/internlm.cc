// models/internlm.cc -- InternLM 7B and 20B, InternLM2 and 2.5 with its reward model, InternLM3.
// Source: modeling_internlm.py of internlm/internlm-chat-7b, modeling_internlm2.py of internlm2_5-7b-chat and
// internlm2-7b-reward, modeling_internlm3.py of internlm3-8b-instruct, with their config.json and index
// files.
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

// The first generation keeps its rope under a key of its own: {"base": 10000, "type": "origin" | "dynamic"}.
// Its class makes it dynamic where the key is absent.
void read_rotary(const ConfigReader& cfg, DecoderSpec& s) {
  if (!cfg.has("rotary")) {
    if (s.rope.kind == RopeSpec::Kind::kDefault) s.rope.kind = RopeSpec::Kind::kDynamicNtk;
    return;
  }
  const ConfigReader rotary = cfg.object("rotary");
  const std::string type = rotary.get("type", "origin");
  if (type != "origin" && type != "dynamic")
    throw Error(ErrorCode::kUnsupported,
                cat(rotary.where(), ": rotary type \"", type, "\" is not known (known: origin, dynamic)"));
  s.rope.theta = rotary.get("base", s.rope.theta);
  if (!(s.rope.theta > 1))
    throw Error(ErrorCode::kInvalidData,
                cat(rotary.where(), ": rotary base is ", s.rope.theta, ", expected a number above 1"));
  if (type == "dynamic" && s.rope.kind == RopeSpec::Kind::kDefault) {
    s.rope.kind = RopeSpec::Kind::kDynamicNtk;
    s.rope.factor = read_factor(rotary, "scaling_factor", 1.0);
  }
}

DecoderSpec read_internlm(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg);
  s.qkv_bias = s.o_bias = cfg.get("bias", true);
  read_rotary(cfg, s);
  return s;
}

DecoderSpec read_internlm2(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg);
  s.qkv_bias = s.o_bias = cfg.get("bias", true);
  return s;
}

DecoderSpec read_internlm2_reward(const ConfigReader& cfg) {
  DecoderSpec s = read_internlm2(cfg);
  s.gives_score = true;
  s.tied_embedding = false;  // the head has one row
  return s;
}

DecoderSpec read_internlm3(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg);
  s.qkv_bias = cfg.get("qkv_bias", false);
  s.o_bias = s.mlp_bias = cfg.get("bias", false);
  return s;
}

constexpr std::array kInternLm2Body = {
    WeightRule{Slot::kEmbed, "model.tok_embeddings.weight", Dim::kVocab, Dim::kHidden},
    WeightRule{Slot::kAttentionNorm, "model.layers.{l}.attention_norm.weight", Dim::kHidden},
    WeightRule{Slot::kQkv, "model.layers.{l}.attention.wqkv.weight", Dim::kQkv, Dim::kHidden, 0, nullptr,
               Stored::kGroupedQkv},
    WeightRule{Slot::kQkvBias, "model.layers.{l}.attention.wqkv.bias", Dim::kQkv, Dim::kNone, 0,
               with_qkv_bias, Stored::kGroupedQkv},
    WeightRule{Slot::kO, "model.layers.{l}.attention.wo.weight", Dim::kHidden, Dim::kQ},
    WeightRule{Slot::kOBias, "model.layers.{l}.attention.wo.bias", Dim::kHidden, Dim::kNone, 0, with_o_bias},
    WeightRule{Slot::kMlpNorm, "model.layers.{l}.ffn_norm.weight", Dim::kHidden},
    WeightRule{Slot::kUp, "model.layers.{l}.feed_forward.w1.weight", Dim::kInner, Dim::kHidden, 0},
    WeightRule{Slot::kUp, "model.layers.{l}.feed_forward.w3.weight", Dim::kInner, Dim::kHidden, 1},
    WeightRule{Slot::kDown, "model.layers.{l}.feed_forward.w2.weight", Dim::kHidden, Dim::kInner},
    WeightRule{Slot::kFinalNorm, "model.norm.weight", Dim::kHidden},
};
constexpr auto kInternLm2Rules =
    join(kInternLm2Body,
         std::array{WeightRule{Slot::kLmHead, "output.weight", Dim::kVocab, Dim::kHidden, 0, untied}});
constexpr auto kInternLm2RewardRules =
    join(kInternLm2Body, std::array{WeightRule{Slot::kLmHead, "v_head.weight", Dim::kOne, Dim::kHidden}});
constexpr WeightTable kLlamaWeights[] = {{"", llama::kRules}};
constexpr WeightTable kInternLm2Weights[] = {{"", kInternLm2Rules}};
constexpr WeightTable kInternLm2RewardWeights[] = {{"", kInternLm2RewardRules}};

}  // namespace

const ModelFamily kInternLm = {"InternLMForCausalLM", read_internlm, kLlamaWeights, make_decoder};
const ModelFamily kInternLm2 = {"InternLM2ForCausalLM", read_internlm2, kInternLm2Weights, make_decoder};
const ModelFamily kInternLm2Reward = {"InternLM2ForRewardModel", read_internlm2_reward,
                                      kInternLm2RewardWeights, make_decoder};
const ModelFamily kInternLm3 = {"InternLM3ForCausalLM", read_internlm3, kLlamaWeights, make_decoder};

}  // namespace lmdeploy
