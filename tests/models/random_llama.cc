#include "random_llama.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/formats/gguf.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy::testing {
namespace {

// Roughly normal: the sum of four uniforms, scaled to variance 1.
double normal(Rng& rng) {
  double sum = -2;
  for (int i = 0; i < 4; ++i) sum += rng.uniform();
  return sum * std::sqrt(3.0);
}

Tensor random_tensor(Rng& rng, DType dtype, const Shape& shape, double mean, double deviation) {
  Tensor tensor(dtype, shape);
  for (int64_t r = 0; r < tensor.view().rows(); ++r)
    for (int64_t c = 0; c < tensor.view().cols(); ++c)
      tensor.view().set(r, c, mean + deviation * normal(rng));
  return tensor;
}

/// Adds the tensors of one model.
class Maker {
 public:
  Maker(MemoryCheckpoint& checkpoint, const LlamaShape& shape, uint64_t seed)
      : checkpoint_(checkpoint), shape_(shape), rng_(seed) {}

  void matrix(const std::string& name, int64_t rows, int64_t cols, bool bias) {
    const double deviation = 1.5 / std::sqrt(static_cast<double>(cols));
    checkpoint_.add(name + ".weight", random_tensor(rng_, shape_.dtype, {rows, cols}, 0, deviation));
    if (bias) checkpoint_.add(name + ".bias", random_tensor(rng_, shape_.dtype, {rows}, 0, 0.5));
  }
  void norm(const std::string& name) {
    checkpoint_.add(name + ".weight", random_tensor(rng_, shape_.dtype, {shape_.hidden}, 1, 0.2));
  }
  void layer(int64_t l) {
    const std::string prefix = cat("model.layers.", l, ".");
    const int64_t q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
    norm(prefix + "input_layernorm");
    matrix(prefix + "self_attn.q_proj", q, shape_.hidden, shape_.attention_bias);
    matrix(prefix + "self_attn.k_proj", kv, shape_.hidden, shape_.attention_bias);
    matrix(prefix + "self_attn.v_proj", kv, shape_.hidden, shape_.attention_bias);
    matrix(prefix + "self_attn.o_proj", shape_.hidden, q, shape_.attention_bias);
    norm(prefix + "post_attention_layernorm");
    matrix(prefix + "mlp.gate_proj", shape_.inner, shape_.hidden, shape_.mlp_bias);
    matrix(prefix + "mlp.up_proj", shape_.inner, shape_.hidden, shape_.mlp_bias);
    matrix(prefix + "mlp.down_proj", shape_.hidden, shape_.inner, shape_.mlp_bias);
  }

 private:
  MemoryCheckpoint& checkpoint_;
  const LlamaShape& shape_;
  Rng rng_;
};

JsonObject config_of(const LlamaShape& shape) {
  return {{"architectures", JsonArray{"LlamaForCausalLM"}},
          {"hidden_size", shape.hidden},
          {"intermediate_size", shape.inner},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.heads},
          {"num_key_value_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"vocab_size", shape.vocab},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},
          {"attention_bias", shape.attention_bias},
          {"mlp_bias", shape.mlp_bias},
          {"tie_word_embeddings", shape.tied}};
}

std::string gguf_name(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {"model.layers.", "blk."},        {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},    {"lm_head", "output"},
      {"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},   {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},   {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},    {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
  };
  for (const auto& [hub, stored] : kParts) {
    const size_t at = name.find(hub);
    if (at != std::string::npos) name.replace(at, hub.size(), stored);
  }
  return name;
}

// convert_hf_to_gguf.py, LlamaModel.permute: of each head's rows, j and j + d/2 become neighbours 2j and 2j
// + 1.
Tensor interleave_heads(ConstTensorView x, int64_t head_dim) {
  Tensor out(x.dtype(), x.shape());
  const bool is_vector = x.rank() == 1;
  const int64_t rows = x.dim(0), unit = is_vector ? block_bytes(x.dtype()) : x.row_stride_bytes();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t head = r / head_dim, i = r % head_dim;
    const int64_t source = head * head_dim + i / 2 + (i % 2) * (head_dim / 2);
    std::memcpy(out.view().data() + r * unit, x.data() + source * unit, static_cast<size_t>(unit));
  }
  return out;
}

Tensor rope_factors(const JsonObject& config, int64_t head_dim) {
  const Json scaled(config);
  JsonObject plain_config = config;
  plain_config.erase("rope_scaling");
  const Json plain(plain_config);
  const auto frequencies = [&](const Json& json) {
    return make_rope_table(read_rope(ConfigReader(json, "config"), head_dim, 256), 1).inv_freq;
  };
  const std::vector<double> before = frequencies(plain), after = frequencies(scaled);
  Tensor factors(DType::kF32, {head_dim / 2});
  for (size_t j = 0; j < before.size(); ++j)
    factors.view().set(static_cast<int64_t>(j), before[j] / after[j]);
  return factors;
}

std::vector<GgufItem> gguf_metadata(const JsonObject& config) {
  std::vector<GgufItem> items = {
      {"general.architecture", GgufType::kString, std::string_view("llama")},
      {"llama.attention.layer_norm_rms_epsilon", GgufType::kF32,
       config.at("rms_norm_eps").to_number<double>()},
  };
  constexpr std::pair<std::string_view, std::string_view> kInts[] = {
      {"llama.context_length", "max_position_embeddings"},
      {"llama.embedding_length", "hidden_size"},
      {"llama.block_count", "num_hidden_layers"},
      {"llama.feed_forward_length", "intermediate_size"},
      {"llama.attention.head_count", "num_attention_heads"},
      {"llama.attention.head_count_kv", "num_key_value_heads"},
      {"llama.attention.key_length", "head_dim"},
      {"llama.attention.value_length", "head_dim"},
      {"llama.rope.dimension_count", "head_dim"},
      {"llama.vocab_size", "vocab_size"},
  };
  for (const auto& [stored, hub] : kInts)
    items.push_back({std::string(stored), GgufType::kU32, config.at(hub).to_number<int64_t>()});
  return items;
}

}  // namespace

MemoryCheckpoint::MemoryCheckpoint() {
  path_ = "memory";
  config_path_ = "memory/config.json";
  config_ = JsonObject();
}

void MemoryCheckpoint::add(const std::string& name, Tensor tensor) {
  tensors_.push_back({name, tensor.dtype(), tensor.shape(), path_, name});
  tensors_in_memory_.push_back(std::move(tensor));
  drops_.push_back(0);
}

void MemoryCheckpoint::remove(std::string_view name) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].name != name) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    tensors_.erase(tensors_.begin() + at);
    tensors_in_memory_.erase(tensors_in_memory_.begin() + at);
    drops_.erase(drops_.begin() + at);
    return;
  }
  LMD_CHECK(false, "no tensor ", name);
}

void MemoryCheckpoint::order_columns(std::string_view name) {
  const auto info = std::ranges::find(tensors_, name, &TensorInfo::name);
  LMD_CHECK(info != tensors_.end(), "no tensor ", name);
  std::vector<int32_t> order(static_cast<size_t>(info->shape[1]));
  std::iota(order.rbegin(), order.rend(), 0);
  info->column_order = std::make_shared<const std::vector<int32_t>>(std::move(order));
}

void MemoryCheckpoint::save(const std::string& folder) const {
  std::ofstream(folder + "/config.json") << to_json_text(config_);
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < tensors_.size(); ++i) named.push_back({tensors_[i].name, tensors_in_memory_[i]});
  write_safetensors(folder + "/model.safetensors", named);
}

std::string to_string(const LlamaShape& s) {
  return cat("hidden ", s.hidden, ", inner ", s.inner, ", layers ", s.layers, ", heads ", s.heads, "/",
             s.kv_heads, " of ", s.head_dim, ", vocab ", s.vocab, s.attention_bias ? ", attention bias" : "",
             s.mlp_bias ? ", mlp bias" : "", s.tied ? ", tied" : "", ", ", s.dtype);
}

MemoryCheckpoint make_random_llama(const LlamaShape& shape, uint64_t seed) {
  MemoryCheckpoint checkpoint;
  checkpoint.mutable_config() = config_of(shape);
  Maker maker(checkpoint, shape, seed);
  maker.matrix("model.embed_tokens", shape.vocab, shape.hidden, /*bias=*/false);
  for (int64_t l = 0; l < shape.layers; ++l) maker.layer(l);
  maker.norm("model.norm");
  if (!shape.tied) maker.matrix("lm_head", shape.vocab, shape.hidden, /*bias=*/false);
  return checkpoint;
}

void write_llama_gguf(const std::string& path, const MemoryCheckpoint& checkpoint) {
  const JsonObject& config = checkpoint.config().as_object();
  const auto head_dim = config.at("head_dim").to_number<int64_t>();
  std::vector<Tensor> owned;
  owned.reserve(checkpoint.tensors().size() + 1);
  std::vector<GgufNamedTensor> named;
  if (config.contains("rope_scaling")) {
    owned.push_back(rope_factors(config, head_dim));
    named.push_back({"rope_freqs.weight", owned.back()});
  }
  for (size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const std::string& name = checkpoint.tensors()[i].name;
    ConstTensorView tensor = checkpoint.tensor(i);
    if (name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos) {
      owned.push_back(interleave_heads(tensor, head_dim));
      tensor = owned.back();
    }
    named.push_back({gguf_name(name), tensor});
  }
  write_gguf(path, gguf_metadata(config), named);
}

std::vector<int> random_ids(uint64_t seed, int64_t count, int64_t vocab) {
  Rng rng(seed);
  std::vector<int> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int>(rng.below(static_cast<uint64_t>(vocab))));
  return ids;
}

TempFolder::TempFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lmdeploy-models-XXXXXX").string();
  LMD_CHECK(mkdtemp(pattern.data()) != nullptr, pattern);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lmdeploy::testing
