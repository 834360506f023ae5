// models/yi.cc -- Yi as first published (01-ai/Yi-6B, -34B, November 2023); later ones say LlamaForCausalLM.
// Source: modeling_yi.py and model.safetensors.index.json beside those weights: Llama with two norms named
// ln1, ln2.
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

constexpr auto kWeights = llama_rules("model.layers.{l}.ln1.weight", "model.layers.{l}.ln2.weight");

}  // namespace

const ModelFamily kYi = {"YiForCausalLM", read_llama_like, kWeights, make_decoder};

}  // namespace lmdeploy
