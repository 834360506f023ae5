#include "lmdeploy/formats/quant/quant_config.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <unordered_map>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void unsupported(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kUnsupported, cat(where, ": ", what));
}

std::string join(const std::vector<int64_t>& numbers) {
  std::string out;
  for (const int64_t number : numbers) out += cat(out.empty() ? "" : ", ", number);
  return out;
}

void check_number(const ConfigReader& cfg, std::string_view key, int64_t value,
                  const std::vector<int64_t>& supported) {
  if (std::find(supported.begin(), supported.end(), value) == supported.end())
    unsupported(cfg.where(), cat(key, " ", value, " is not supported; supported are ", join(supported)));
}

// Absent: nothing is added. -1 stands for whole rows.
void add_group_size(const ConfigReader& cfg, std::string_view key, QuantConfig& out) {
  if (!cfg.has(key)) return;
  out.group_sizes.push_back(cfg.require_int(key));
  check_number(cfg, key, out.group_sizes.back(), {-1, 16, 32, 64, 128, 256, 512, 1024});
}
void add_bits(const ConfigReader& cfg, std::string_view key, const std::vector<int64_t>& supported,
              QuantConfig& out) {
  if (!cfg.has(key)) return;
  out.bits.push_back(cfg.require_int(key));
  check_number(cfg, key, out.bits.back(), supported);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

void expect_word(const ConfigReader& cfg, std::string_view key, const char* fallback,
                 std::initializer_list<std::string_view> supported) {
  const std::string value = lower(cfg.get(key, fallback));
  if (std::find(supported.begin(), supported.end(), value) != supported.end()) return;
  std::string list;
  for (const std::string_view word : supported) list += cat(list.empty() ? "" : ", ", word);
  unsupported(cfg.where(), cat(key, " ", quote(value), " is not supported; supported are ", list));
}

// AutoAWQ, and llm-awq's quant_config.json with other words for the same.
void read_awq(const ConfigReader& cfg, QuantConfig& out) {
  expect_word(cfg, "version", "gemm", {"gemm"});
  add_bits(cfg, cfg.has("w_bit") ? "w_bit" : "bits", {4}, out);
  add_group_size(cfg, cfg.has("q_group_size") ? "q_group_size" : "group_size", out);
  if (!cfg.get("zero_point", true))
    unsupported(cfg.where(), "zero_point false is not supported; supported is true");
}

void read_gptq(const ConfigReader& cfg, QuantConfig& out) {
  expect_word(cfg, "checkpoint_format", "gptq", {"gptq", "gptq_v2"});
  out.zero_is_less_one = lower(cfg.get("checkpoint_format", "gptq")) == "gptq";
  add_bits(cfg, "bits", {2, 3, 4, 8}, out);
  add_group_size(cfg, "group_size", out);
  out.needs_group_index = cfg.get("desc_act", false);
  if (cfg.get("is_marlin_format", false)) unsupported(cfg.where(), "is_marlin_format is not supported");
  const Json* dynamic = cfg.find("dynamic");
  if (dynamic != nullptr && !(dynamic->is_object() && dynamic->get_object().empty()))
    unsupported(cfg.where(), "\"dynamic\" (other settings for some modules) is not supported");
}

void read_block(const ConfigReader& cfg, std::string_view key, QuantConfig& out) {
  const Json* block = cfg.find(key);
  if (block == nullptr) return;
  const JsonArray* sizes = block->if_array();
  const auto usable = [](const Json& size) { return size.is_int64() && size.get_int64() > 0; };
  if (sizes == nullptr || sizes->size() != 2 || !usable((*sizes)[0]) || !usable((*sizes)[1]))
    throw Error(ErrorCode::kInvalidData, cat(cfg.where(), ": key ", quote(key), " is ", to_json_text(*block),
                                             ", expected [rows, columns]"));
  out.block_rows = (*sizes)[0].get_int64();
  out.block_cols = (*sizes)[1].get_int64();
}

void read_compressed_weights(const ConfigReader& weights, QuantConfig& out) {
  expect_word(weights, "type", "int", {"int", "float"});
  expect_word(weights, "strategy", "channel", {"tensor", "channel", "group", "block"});
  add_bits(weights, "num_bits", {4, 8}, out);
  const std::string strategy = lower(weights.get("strategy", "channel"));
  if (strategy == "group") {
    add_group_size(weights, "group_size", out);
  } else if (strategy == "block") {
    read_block(weights, "block_structure", out);
  } else {
    out.group_sizes.push_back(-1);
  }
}

void read_compressed(const ConfigReader& cfg, QuantConfig& out) {
  const auto check_format = [](const ConfigReader& reader) {
    expect_word(reader, "format", "pack-quantized",
                {"pack-quantized", "int-quantized", "naive-quantized", "float-quantized", "mixed-precision"});
  };
  check_format(cfg);
  if (cfg.has("sparsity_config")) {
    const ConfigReader sparsity = cfg.object("sparsity_config");
    expect_word(sparsity, "format", "dense", {"dense"});
  }
  const ConfigReader groups = cfg.object("config_groups");
  const Json& groups_json = *cfg.find("config_groups");
  bool any_symmetric = false;
  for (const auto& item : groups_json.as_object()) {
    const ConfigReader group = groups.object(item.key());
    check_format(group);
    if (!group.has("weights")) continue;
    const ConfigReader weights = group.object("weights");
    read_compressed_weights(weights, out);
    (weights.get("symmetric", true) ? any_symmetric : out.needs_zeros) = true;
  }
  if (any_symmetric) out.needs_zeros = false;  // which modules are of which group, the names do not say
}

using ReadConfig = void (*)(const ConfigReader&, QuantConfig&);
void read_fp8(const ConfigReader& cfg, QuantConfig& out) { read_block(cfg, "weight_block_size", out); }
void read_nothing(const ConfigReader&, QuantConfig&) {}

struct Method {
  std::string_view name;
  WeightFormat format;
  ReadConfig read;
};
constexpr Method kMethods[] = {
    {"awq", WeightFormat::kAwq, read_awq},
    {"gptq", WeightFormat::kGptq, read_gptq},
    {"compressed-tensors", WeightFormat::kCompressedTensors, read_compressed},
    {"fp8", WeightFormat::kFp8, read_fp8},
    {"fbgemm_fp8", WeightFormat::kFp8, read_nothing},
    {"mxfp4", WeightFormat::kMxfp4, read_nothing},
    {"smooth_quant", WeightFormat::kW8A8, read_nothing},
};

QuantConfig read_method(const ConfigReader& cfg, const std::string& name) {
  const std::string found = lower(name);
  std::string list;
  for (const Method& method : kMethods) {
    list += cat(list.empty() ? "" : ", ", method.name);
    if (method.name != found) continue;
    QuantConfig out;
    out.format = method.format;
    out.where = cfg.where();
    method.read(cfg, out);
    return out;
  }
  unsupported(cfg.where(), cat("quant_method ", quote(name), " is not supported; supported are ", list));
}

/// What the tensors alone say.
class TensorLook {
 public:
  explicit TensorLook(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
    for (const TensorInfo& info : checkpoint.tensors()) by_name_.emplace(info.name, &info);
  }

  WeightFormat format() const {
    for (const TensorInfo& info : checkpoint_.tensors()) {
      const std::string_view name = info.name;
      const bool fp8 = info.dtype == DType::kF8E4M3 || info.dtype == DType::kF8E5M2;
      if (name.ends_with(".qweight")) return packed_format(info);
      if (name.ends_with(".weight_packed")) return WeightFormat::kCompressedTensors;
      if (name.ends_with("_blocks") && find(name, "_blocks", "_scales")) return WeightFormat::kMxfp4;
      if (!name.ends_with(".weight")) continue;
      if ((fp8 || info.dtype == DType::kI8) && find(name, ".weight", ".scale")) return WeightFormat::kW8A8;
      if (fp8) return WeightFormat::kFp8;
      if (info.dtype == DType::kI8 && find(name, ".weight", ".weight_scale"))
        return WeightFormat::kCompressedTensors;
    }
    return WeightFormat::kHf;
  }

 private:
  const TensorInfo* find(std::string_view name, std::string_view suffix, std::string_view other) const {
    const auto found = by_name_.find(cat(name.substr(0, name.size() - suffix.size()), other));
    return found == by_name_.end() ? nullptr : found->second;
  }
  // AWQ packs 8 outputs into a word, so its rows are shorter than those of the scales; GPTQ packs inputs.
  WeightFormat packed_format(const TensorInfo& qweight) const {
    const TensorInfo* scales = find(qweight.name, ".qweight", ".scales");
    const bool by_output = scales != nullptr && scales->shape.rank() == 2 && qweight.shape.rank() == 2 &&
                           scales->shape[1] != qweight.shape[1];
    return by_output ? WeightFormat::kAwq : WeightFormat::kGptq;
  }

  const Checkpoint& checkpoint_;
  std::unordered_map<std::string, const TensorInfo*> by_name_;
};

// Older checkpoints say it in a file beside config.json.
std::optional<QuantConfig> read_own_file(const Checkpoint& checkpoint) {
  for (const auto& [file, read, format] :
       {std::tuple("quantize_config.json", &read_gptq, WeightFormat::kGptq),
        std::tuple("quant_config.json", &read_awq, WeightFormat::kAwq)}) {
    const std::string path = (fs::path(checkpoint.config_path()).parent_path() / file).string();
    if (!fs::exists(path)) continue;
    const Json json = read_json_file(path);
    const ConfigReader cfg(json, path);
    if (cfg.has("quant_method")) return read_method(cfg, cfg.get("quant_method", ""));
    QuantConfig out;
    out.format = format;
    out.where = path;
    read(cfg, out);
    return out;
  }
  return std::nullopt;
}

}  // namespace

QuantConfig read_quant_config(const Checkpoint& checkpoint) {
  const ConfigReader cfg(checkpoint.config(), checkpoint.config_path());
  if (cfg.has("quantization_config")) {
    const ConfigReader quant = cfg.object("quantization_config");
    return read_method(quant, quant.get("quant_method", "unnamed"));
  }
  QuantConfig found;
  found.format = TensorLook(checkpoint).format();
  found.where = cat(checkpoint.path(), " (by its tensors)");
  if (found.format == WeightFormat::kAwq || found.format == WeightFormat::kGptq) {
    if (std::optional<QuantConfig> own = read_own_file(checkpoint)) return *own;
  }
  return found;
}

}  // namespace lmdeploy
