#include "lmdeploy/bench/random_checkpoint.h"

#include <cmath>
#include <map>
#include <mutex>

#include "lmdeploy/bench/measure.h"
#include "lmdeploy/bench/random_tensor.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

/// The numbers of a published config.json.
struct ModelShape {
  const char* name;
  const char* architecture;
  int64_t hidden, inner, layers, heads, kv_heads, head_dim, vocab, max_positions;
  bool tied;
  double rope_theta;
  bool qkv_bias = false, head_norms = false;
  int64_t experts = 0;  // of which a token goes through two; 0: one MLP
};

constexpr ModelShape kShapes[] = {
    {"tiny", "LlamaForCausalLM", 256, 512, 2, 4, 2, 64, 512, 2048, false, 1e4},  // for tries
    {"smollm-135m", "LlamaForCausalLM", 576, 1536, 30, 9, 3, 64, 49152, 8192, true, 1e5},
    {"qwen2.5-0.5b", "Qwen2ForCausalLM", 896, 4864, 24, 14, 2, 64, 151936, 32768, true, 1e6, true},
    {"qwen3-0.6b", "Qwen3ForCausalLM", 1024, 3072, 28, 16, 8, 128, 151936, 40960, true, 1e6, false, true},
    {"llama-1b", "LlamaForCausalLM", 2048, 8192, 16, 32, 8, 64, 128256, 131072, true, 5e5},
    {"llama-3b", "LlamaForCausalLM", 3072, 8192, 28, 24, 8, 128, 128256, 131072, true, 5e5},
    {"qwen2.5-7b", "Qwen2ForCausalLM", 3584, 18944, 28, 28, 4, 128, 152064, 32768, false, 1e6, true},
    {"llama2-7b", "LlamaForCausalLM", 4096, 11008, 32, 32, 32, 128, 32000, 4096, false, 1e4},
    {"llama-8b", "LlamaForCausalLM", 4096, 14336, 32, 32, 8, 128, 128256, 131072, false, 5e5},
    {"mixtral-8x7b", "MixtralForCausalLM", 4096, 14336, 32, 32, 8, 128, 32000, 32768, false, 1e6, false,
     false, 8},
};

const ModelShape& find_shape(const std::string& name) {
  std::string known;
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
    known += cat(known.empty() ? "" : ", ", shape.name);
  }
  throw Error(ErrorCode::kInvalidArgument, cat("there is no shape ", name, "; there are: ", known));
}

/// Files in the kinds of AWQ, GPTQ, W8A8 and fp8 have embedding, head and router in 16 bits.
DType kind_of_ends(DType weights) {
  return is_integer_group(weights) || weights == DType::kF8G64 ? DType::kF16 : weights;
}

JsonObject config_of(const ModelShape& s, DType weights) {
  JsonObject config = {{"architectures", JsonArray{s.architecture}},
                       {"hidden_size", s.hidden},
                       {"intermediate_size", s.inner},
                       {"num_hidden_layers", s.layers},
                       {"num_attention_heads", s.heads},
                       {"num_key_value_heads", s.kv_heads},
                       {"head_dim", s.head_dim},
                       {"vocab_size", s.vocab},
                       {"max_position_embeddings", s.max_positions},
                       {"rms_norm_eps", 1e-5},
                       {"rope_theta", s.rope_theta},
                       {"tie_word_embeddings", s.tied},
                       {"torch_dtype", weights == DType::kBF16 ? "bfloat16" : "float16"}};
  if (s.experts > 0) {
    config["num_local_experts"] = s.experts;
    config["num_experts_per_tok"] = 2;
  }
  return config;
}

class Random final : public RandomCheckpoint {
 public:
  Random(const ModelShape& shape, DType weights, uint64_t seed) : weights_(weights), seed_(seed) {
    path_ = cat("random ", shape.name, " ", weights);
    config_path_ = path_;
    config_ = config_of(shape, weights);
    matrix("model.embed_tokens", shape.vocab, shape.hidden, kind_of_ends(weights));
    for (int64_t l = 0; l < shape.layers; ++l) add_layer(shape, cat("model.layers.", l, "."));
    vector("model.norm.weight", shape.hidden);
    if (!shape.tied) matrix("lm_head", shape.vocab, shape.hidden, kind_of_ends(weights));
  }

  ConstTensorView tensor(size_t index) const override {
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = made_.try_emplace(index);
    if (is_new) making_seconds_ += seconds_of([&] { entry->second = make(index); });
    return entry->second;
  }
  void drop(size_t index) const override {
    const std::lock_guard lock(mutex_);
    made_.erase(index);
  }
  double making_seconds() const override {
    const std::lock_guard lock(mutex_);
    return making_seconds_;
  }

 private:
  void add_layer(const ModelShape& s, const std::string& prefix) {
    const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    vector(prefix + "input_layernorm.weight", s.hidden);
    matrix(attention + "q_proj", q, s.hidden);
    matrix(attention + "k_proj", kv, s.hidden);
    matrix(attention + "v_proj", kv, s.hidden);
    if (s.qkv_bias) {
      vector(attention + "q_proj.bias", q);
      vector(attention + "k_proj.bias", kv);
      vector(attention + "v_proj.bias", kv);
    }
    if (s.head_norms) {
      vector(attention + "q_norm.weight", s.head_dim);
      vector(attention + "k_norm.weight", s.head_dim);
    }
    matrix(attention + "o_proj", s.hidden, q);
    vector(prefix + "post_attention_layernorm.weight", s.hidden);
    if (s.experts > 0) return add_experts(s, prefix + "block_sparse_moe.");
    matrix(mlp + "gate_proj", s.inner, s.hidden);
    matrix(mlp + "up_proj", s.inner, s.hidden);
    matrix(mlp + "down_proj", s.hidden, s.inner);
  }
  void add_experts(const ModelShape& s, const std::string& prefix) {
    matrix(prefix + "gate", s.experts, s.hidden, kind_of_ends(weights_));
    for (int64_t e = 0; e < s.experts; ++e) {
      const std::string expert = cat(prefix, "experts.", e, ".");
      matrix(expert + "w1", s.inner, s.hidden);
      matrix(expert + "w2", s.hidden, s.inner);
      matrix(expert + "w3", s.inner, s.hidden);
    }
  }
  void matrix(const std::string& name, int64_t rows, int64_t cols) { matrix(name, rows, cols, weights_); }
  void matrix(const std::string& name, int64_t rows, int64_t cols, DType kind) {
    if (cols % block_size(kind) != 0)
      throw Error(ErrorCode::kUnsupported, cat(path_, ": ", name, " has ", cols, " columns; ", kind,
                                               " needs a multiple of ", block_size(kind)));
    add_info({name + ".weight", kind, {rows, cols}, path_, name});
  }
  void vector(const std::string& name, int64_t size) { add_info({name, DType::kF32, {size}, path_, name}); }

  // Outputs of a matrix are as large as its inputs.
  Tensor make(size_t index) const {
    const TensorInfo& info = tensors_[index];
    if (info.shape.rank() == 2)
      return random_tensor(info.dtype, info.shape, 1 / std::sqrt(static_cast<double>(info.shape[1])),
                           seed_ + index);
    Tensor values(info.dtype, info.shape);
    const bool bias = info.name.ends_with(".bias");
    for (float& value : values.span<float>()) value = bias ? 0.01f : 1.0f;
    return values;
  }

  const DType weights_;
  const uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::map<size_t, Tensor> made_;
  mutable double making_seconds_ = 0;
};

}  // namespace

std::vector<std::string> model_shape_names() {
  std::vector<std::string> names;
  for (const ModelShape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

std::unique_ptr<RandomCheckpoint> make_random_checkpoint(const std::string& shape, DType weights,
                                                         uint64_t seed) {
  if (weights == DType::kF64 || !(is_float(weights) || is_quantized(weights)))
    throw Error(ErrorCode::kUnsupported, cat("there are no weights of kind ", weights));
  return std::make_unique<Random>(find_shape(shape), weights, seed);
}

}  // namespace lmdeploy
