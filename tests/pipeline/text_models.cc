#include "text_models.h"

#include <cmath>
#include <fstream>
#include <vector>

#include "../models/random_llama.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/core/tensor.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/formats/safetensors.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kHidden = 128, kInner = 16, kHeads = 2;

constexpr const char* kChatTemplate =
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw Error(ErrorCode::kIo, cat("cannot write ", path));
}

/// GPT-2's printable stand-in for each byte.
JsonObject byte_vocabulary() {
  JsonObject vocabulary;
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string spelling;
    append_utf8(spelling, plain ? static_cast<char32_t>(byte) : next++);
    vocabulary[spelling] = byte;
  }
  return vocabulary;
}

JsonObject special_token(int id, const std::string& text) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

JsonObject byte_level(bool add_prefix_space) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", true}};
}

int successor(int id, char after_newline) {
  if (id == '\n') return after_newline;
  if (id >= '0' && id <= '9') return '0' + (id - '0' + 1) % 10;
  if (id >= 'a' && id < 'z') return id + 1;
  return id == 'z' ? kImEnd : id;
}

float& at(Tensor& tensor, int64_t row, int64_t col) { return tensor.view().row<float>(row)[col]; }

Tensor filled(const Shape& shape, float value) {
  Tensor tensor(DType::kF32, shape);
  for (float& element : tensor.span<float>()) element = value;
  return tensor;
}

/// Rows of +1 and -1, nearly orthogonal to each other.
Tensor random_signs(int64_t rows) {
  Rng rng(7);
  Tensor tensor(DType::kF32, {rows, kHidden});
  for (float& element : tensor.span<float>()) element = rng.below(2) == 0 ? -1.0f : 1.0f;
  return tensor;
}

/// Row n of the head is the sum of the embeddings of all tokens that n follows.
Tensor chain_head(Tensor& embedding, char after_newline) {
  Tensor head = filled({kTextVocab, kHidden}, 0);
  for (int id = 0; id < kTextVocab; ++id)
    for (int64_t i = 0; i < kHidden; ++i) at(head, successor(id, after_newline), i) += at(embedding, id, i);
  return head;
}

void write_chain_weights(const std::string& path, char after_newline) {
  const std::string layer = "model.layers.0.";
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto add = [&](const std::string& name, Tensor tensor) {
    tensors.emplace_back(name, std::move(tensor));
  };
  Tensor embedding = random_signs(kTextVocab);
  add("lm_head.weight", chain_head(embedding, after_newline));
  add("model.embed_tokens.weight", std::move(embedding));
  add("model.norm.weight", filled({kHidden}, 1));
  for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
    add(layer + norm, filled({kHidden}, 1));
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
    add(layer + "self_attn." + name + ".weight", filled({kHidden, kHidden}, 0));
  for (const char* name : {"gate_proj", "up_proj"})
    add(layer + "mlp." + name + ".weight", filled({kInner, kHidden}, 0));
  add(layer + "mlp.down_proj.weight", filled({kHidden, kInner}, 0));
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, tensor});
  write_safetensors(path, named);
}

}  // namespace

void write_tokenizer_files(const std::string& folder, bool eos, const std::vector<std::string>& marks) {
  JsonArray added = {special_token(kBos, "<s>"), special_token(kImStart, "<|im_start|>"),
                     special_token(kImEnd, "<|im_end|>")};
  for (size_t i = 0; i < marks.size(); ++i)
    added.push_back(special_token(kTextVocab + static_cast<int>(i), marks[i]));
  const JsonObject tokenizer = {
      {"version", "1.0"},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level(false)},
      {"post_processor", nullptr},
      {"decoder", byte_level(true)},
      {"model", JsonObject{{"type", "BPE"}, {"vocab", byte_vocabulary()}, {"merges", JsonArray()}}}};
  JsonObject config = {
      {"tokenizer_class", "PreTrainedTokenizerFast"}, {"bos_token", "<s>"}, {"chat_template", kChatTemplate}};
  if (eos) config["eos_token"] = "<|im_end|>";
  write_text(folder + "/tokenizer.json", to_json_text(tokenizer));
  write_text(folder + "/tokenizer_config.json", to_json_text(config));
}

void write_chain_model(const std::string& folder, const ChainModel& model) {
  JsonObject config = {{"architectures", JsonArray{"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"hidden_size", kHidden},
                       {"intermediate_size", kInner},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", kHeads},
                       {"num_key_value_heads", kHeads},
                       {"vocab_size", kTextVocab},
                       {"max_position_embeddings", model.max_positions},
                       {"rms_norm_eps", 1e-6},
                       {"rope_theta", 10000.0},
                       {"tie_word_embeddings", false},
                       {"torch_dtype", "float32"}};
  for (const auto& entry : model.config) config.insert_or_assign(entry.key(), entry.value());
  write_text(folder + "/config.json", to_json_text(config));
  if (!model.generation_config.empty())
    write_text(folder + "/generation_config.json", to_json_text(model.generation_config));
  write_chain_weights(folder + "/model.safetensors", model.after_newline);
  if (model.tokenizer) write_tokenizer_files(folder, model.eos);
}

void write_random_text_model(const std::string& folder, uint64_t seed) {
  LlamaShape shape;
  shape.vocab = kTextVocab;
  make_random_llama(shape, seed).save(folder);
  write_tokenizer_files(folder);
}

}  // namespace lmdeploy::testing
