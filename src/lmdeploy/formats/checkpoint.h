// A checkpoint as the models see it: named tensors in hub naming and a config in hub form, whatever the file
// format.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/json.h"
#include "lmdeploy/core/tensor.h"
#include "lmdeploy/formats/weight_format.h"

namespace lmdeploy {

/// Column j of a matrix is input (*order)[j] of its layer, a permutation; null: input j. GPTQ's "act-order":
/// the inputs of a group lie side by side, so that integers stay integers.
using ColumnOrder = std::shared_ptr<const std::vector<int32_t>>;

struct TensorInfo {
  std::string name;  // hub name: "model.layers.0.self_attn.q_proj.weight"
  DType dtype = DType::kF32;
  Shape shape;              // [out, in] for matrices
  std::string file;         // path of the file that holds it
  std::string stored_name;  // its name in that file (differs in GGUF)
  ColumnOrder column_order = nullptr;
};

/// Read-only; thread-safe. All headers have been checked: every view returned lies inside its file.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  /// As given to open_checkpoint().
  const std::string& path() const { return path_; }
  /// config.json, or what GGUF metadata say in the same words (architectures, hidden_size, rope_theta, ...;
  /// `rope_interleaved: true` where the file's q and k rows are stored for interleaved pairs).
  const Json& config() const { return config_; }
  /// Where config() came from, for messages.
  const std::string& config_path() const { return config_path_; }
  /// generation_config.json; an empty object when there is none.
  const Json& generation_config() const { return generation_config_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// What the files have and tensors() has not, or in another form: a line each, for people.
  const std::vector<std::string>& left_out() const { return left_out_; }
  /// How the files store the weights.
  WeightFormat weight_format() const { return weight_format_; }
  /// How the model is to be run, as a converted workspace says it: engine options by their names, and
  /// "chat_template"; empty for other forms.
  const JsonObject& engine_settings() const { return engine_settings_; }
  /// Where those came from, for messages.
  const std::string& settings_path() const { return settings_path_; }
  /// The weight and config files that all this comes from.
  const std::vector<std::string>& files() const { return files_; }
  /// Contiguous rows, aligned for the dtype: in the mapped file, or where the file stores something else
  /// (misaligned, strided, quantised, in pieces) in a copy made at the first call. Valid until drop(index).
  virtual ConstTensorView tensor(size_t index) const = 0;
  /// The tensor will not be read again; its pages may go.
  virtual void drop(size_t index) const = 0;

 protected:
  /// Appends to tensors_; a name given twice is an Error(kInvalidData) naming both files.
  void add_info(TensorInfo info);

  std::string path_, config_path_, settings_path_;
  Json config_;
  Json generation_config_ = JsonObject();
  JsonObject engine_settings_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> left_out_;
  std::vector<std::string> files_;
  WeightFormat weight_format_ = WeightFormat::kHf;

 private:
  std::map<std::string, size_t, std::less<>> by_name_;
};

struct OpenOptions {
  /// What the checkpoint must be, one of weight_format_names(); empty: whatever it is. Of a folder that has
  /// hub and Meta form, "llama" chooses the latter.
  std::string model_format;
};

/// `path`: a converted workspace (a folder with triton_models); a folder with, in this order of preference,
/// config.json and weights of the hub's form (model.safetensors or model.safetensors.index.json and its
/// shards, then pytorch_model.bin or its index and shards), exactly one .gguf, params.json and
/// consolidated.NN.pth as Meta publishes Llama, or config.json and any .bin files; or a .gguf, .safetensors,
/// .bin, .pt or .pth file with its config beside it. Of a GGUF file in parts
/// ("-00001-of-00003.gguf") all parts are read, whichever was named. Quantised hub checkpoints (AWQ, GPTQ,
/// compressed-tensors, fp8, MXFP4, SmoothQuant) come out as quant/quantized_checkpoint.h says. Throws Error:
/// kNotFound (no such path; a folder without weights: says what was looked for), kInvalidArgument (another
/// model_format), kUnsupported, kInvalidData (file, tensor, what was wrong).
std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path, const OpenOptions& options = {});

/// Typed access to a config object: every message names file, key, what was found and what was expected.
class ConfigReader {
 public:
  /// Looks keys up in the first nested text config (`text_config`, `llm_config`, `language_config`,
  /// `thinker_config`; the innermost when one holds another) and then at the top. A key that the nested
  /// config sets to null is absent. `config` must outlive the reader.
  ConfigReader(const Json& config, std::string where);

  bool has(std::string_view key) const;  // present and not null
  /// Present and null: where the original code has a default for an absent key, null often means none.
  bool is_null(std::string_view key) const;
  /// The value, or `fallback` when absent or null; another kind, a fraction where an integer is asked for, or
  /// a value out of range is an Error(kInvalidData). 1e3 is an integer.
  int64_t get(std::string_view key, int64_t fallback) const;
  int get(std::string_view key, int fallback) const;
  double get(std::string_view key, double fallback) const;
  bool get(std::string_view key, bool fallback) const;
  std::string get(std::string_view key, const char* fallback) const;
  int64_t require_int(std::string_view key) const;
  /// nullptr when absent or null.
  const Json* find(std::string_view key) const;
  /// The same, past a nested text config.
  const Json* find_at_top(std::string_view key) const;
  /// The first of `keys` that is present.
  const Json* find_any(std::initializer_list<std::string_view> keys) const;
  /// A reader for an object below, e.g. rope_scaling; throws when it is not an object.
  ConfigReader object(std::string_view key) const;
  /// architectures[0] of the top level (a model that nests its text config is not that text model), else the
  /// class name in auto_map.AutoModelForCausalLM; "" when both are absent.
  std::string architecture() const;
  const std::string& where() const { return where_; }
  /// Whether this reader, or one for an object below ("rope_scaling.factor"), has looked the key up.
  bool was_read(std::string_view key) const { return keys_read_->contains(key); }

 private:
  using Keys = std::set<std::string, std::less<>>;
  ConfigReader(const Json& config, std::string where, std::string prefix, std::shared_ptr<Keys> keys_read);
  const Json* find_stored(std::string_view key) const;  // null included

  const JsonObject* top_;
  const JsonObject* nested_ = nullptr;
  std::string where_;
  std::string prefix_;               // of this object's keys in keys_read_
  std::shared_ptr<Keys> keys_read_;  // one for a config and all objects below it
};

/// Whether the key is one under which configs nest that of the text model.
bool names_text_config(std::string_view key);
/// The innermost config of a text model in `config`; `config` itself when there is none.
JsonObject& text_config(JsonObject& config);

/// Ids under `key` of a config: an int or a list of ints; empty when absent. -1, which old configs write for
/// "none", is left out.
std::vector<int> token_ids_from(const Json& config, std::string_view key, std::string_view where);

}  // namespace lmdeploy
