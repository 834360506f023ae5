// models/baichuan.cc -- Baichuan 7B and 13B, Baichuan2 7B and 13B.
// Source: modeling_baichuan.py and config.json of baichuan-inc/Baichuan-7B, Baichuan-13B-Chat,
// Baichuan2-7B-Chat and Baichuan2-13B-Chat. The class name tells neither size nor generation: the 13B ones
// have ALiBi instead of rope and no max_position_embeddings, the second generation divides each row of its
// output matrix by the row's norm.
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

constexpr int64_t kSecondGenerationVocab = 125696;

DecoderSpec read_spec(const ConfigReader& cfg) {
  const bool rope = cfg.has("max_position_embeddings");
  DecoderSpec s = read_llama_like(cfg, {.rope = rope, .default_max_positions = 4096});
  if (!rope) s.alibi = Alibi::kPlain;
  s.unit_head_rows = cfg.has("z_loss_weight") || s.vocab_size == kSecondGenerationVocab;
  return s;
}

bool with_plain_head(const DecoderSpec& s, const LayerSpec&) {
  return !s.tied_embedding && !s.unit_head_rows;
}
bool with_unit_head(const DecoderSpec& s, const LayerSpec&) { return !s.tied_embedding && s.unit_head_rows; }

constexpr std::array kOwn = {
    llama::kEmbed,
    WeightRule{Slot::kQkv, "model.layers.{l}.self_attn.W_pack.weight", Dim::kQkv, Dim::kHidden},
    WeightRule{Slot::kO, "model.layers.{l}.self_attn.o_proj.weight", Dim::kHidden, Dim::kQ},
    WeightRule{Slot::kFinalNorm, "model.norm.weight", Dim::kHidden},
    WeightRule{Slot::kLmHead, "lm_head.weight", Dim::kVocab, Dim::kHidden, 0, with_plain_head},
    WeightRule{Slot::kLmHead, "lm_head.weight", Dim::kVocab, Dim::kHidden, 0, with_unit_head,
               Stored::kUnitRows},
};
constexpr auto kRules = join(kOwn, llama::kNorms, llama::kMlp);
constexpr WeightTable kWeights[] = {{"", kRules}};

}  // namespace

const ModelFamily kBaichuan = {"BaichuanForCausalLM", read_spec, kWeights, make_decoder};
const ModelFamily kBaichuanOldSpelling = {"BaiChuanForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
