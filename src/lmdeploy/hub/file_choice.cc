#include "lmdeploy/hub/file_choice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"

namespace lmdeploy {
namespace {

using Names = std::vector<std::string>;

constexpr std::array<std::string_view, 12> kSmallFiles = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
};
constexpr const char* kTiktoken = ".tiktoken";
constexpr const char* kTiktokenRules = "tiktoken.json";
constexpr const char* kGguf = ".gguf";

/// Weights in one file, or in shards that an index lists.
struct Format {
  const char* whole;
  const char* index;
};
constexpr Format kSafetensors = {"model.safetensors", "model.safetensors.index.json"};
constexpr Format kPickled = {"pytorch_model.bin", "pytorch_model.bin.index.json"};

bool has(const Names& files, std::string_view name) {
  return std::find(files.begin(), files.end(), name) != files.end();
}

bool is_small(std::string_view name) {
  return std::find(kSmallFiles.begin(), kSmallFiles.end(), name) != kSmallFiles.end() ||
         name == kTiktokenRules || (name.ends_with(kTiktoken) && name.find('/') == std::string_view::npos);
}

std::string joined(const Names& names) {
  constexpr size_t kShown = 20;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) list += cat(i == 0 ? "" : ", ", names[i]);
  return names.size() > kShown ? cat(list, ", ... (", names.size(), " in all)") : list;
}

/// The files that an index lists, each once.
Names shards_of(std::string_view text, const std::string& where) {
  const Json value = parse_json(text, where);
  const JsonObject* top = value.if_object();
  const Json* map = top == nullptr ? nullptr : top->if_contains("weight_map");
  if (map == nullptr || !map->is_object())
    throw Error(ErrorCode::kInvalidData, cat(where, ": there is no object \"weight_map\""));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->get_object()) {
    const std::string name = shard.is_string() ? std::string(shard.get_string()) : "";
    if (!is_safe_path(name) || name.find('/') != std::string::npos)
      throw Error(ErrorCode::kInvalidData, cat(where, ": tensor \"", shown(tensor), "\" is in \"",
                                               shown(name), "\", which is no file beside it"));
    shards.insert(name);
  }
  return {shards.begin(), shards.end()};
}

/// Nothing when the format is not there.
std::optional<Weights> weights_of(const Format& format, const Names& files,
                                  const std::function<std::string(const std::string&)>& read,
                                  const std::string& where) {
  const bool has_whole = has(files, format.whole);
  if (!has(files, format.index)) {
    if (!has_whole) return std::nullopt;
    return Weights{{format.whole}, ""};
  }
  const Names shards = shards_of(read(format.index), cat(where, ": ", format.index));
  const auto missing = std::find_if(shards.begin(), shards.end(),
                                    [&](const std::string& shard) { return !has(files, shard); });
  if (missing == shards.end() && !shards.empty()) return Weights{shards, ""};
  if (has_whole) return Weights{{format.whole}, ""};  // the index is left over from another form
  throw Error(ErrorCode::kNotFound, cat(where, ": ", format.index, " lists ",
                                        shards.empty() ? "nothing" : *missing, ", which is not there"));
}

/// "x-00002-of-00003.gguf" without its last number and what follows; empty for a file by itself.
std::string_view part_prefix(std::string_view name) {
  constexpr std::string_view kForm = "-00001-of-00001.gguf";
  if (name.size() <= kForm.size()) return "";
  const std::string_view end = name.substr(name.size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = end[i] >= '0' && end[i] <= '9';
    if (kForm[i] == '0' || kForm[i] == '1' ? !digit : end[i] != kForm[i]) return "";
  }
  return name.substr(0, name.size() - kForm.size());
}

constexpr size_t kPartAt = 19, kCountAt = 10;  // "00001-of-00001.gguf", "00001.gguf" from the end

/// `name`, or all parts of the model that it is a part of.
Names parts_of(const std::string& name, const Names& files, const std::string& where) {
  const std::string_view prefix = part_prefix(name);
  if (prefix.empty()) return {name};
  const std::string count_text = name.substr(name.size() - kCountAt, 5);
  int count = 0;
  std::from_chars(count_text.data(), count_text.data() + count_text.size(), count);
  Names parts;
  for (int number = 1; number <= count; ++number) {
    const std::string digits = std::to_string(number);
    parts.push_back(cat(prefix, "-", std::string(5 - digits.size(), '0'), digits, "-of-", count_text, kGguf));
    if (!has(files, parts.back()))
      throw Error(ErrorCode::kNotFound,
                  cat(where, ": ", parts.back(), " is not there; ", name, " is one of ", count, " parts"));
  }
  return parts;
}

/// Whole models; of one in parts the first.
Names gguf_models(const Names& files) {
  Names models;
  for (const std::string& name : files) {
    if (!name.ends_with(kGguf)) continue;
    const bool later_part =
        !part_prefix(name).empty() && name.compare(name.size() - kPartAt, 5, "00001") != 0;
    if (!later_part) models.push_back(name);
  }
  std::sort(models.begin(), models.end());
  return models;
}

Weights named_gguf(const Names& files, const ModelId& id, const std::string& where) {
  if (!has(files, id.file))
    throw Error(ErrorCode::kNotFound, cat(where, ": there is no file ", id.file,
                                          "; its .gguf files: ", joined(gguf_models(files))));
  Names parts = parts_of(id.file, files, where);
  std::string first = parts.front();
  return {std::move(parts), std::move(first)};
}

std::optional<Weights> only_gguf(const Names& files, const ModelId& id, const std::string& where) {
  const Names models = gguf_models(files);
  if (models.empty()) return std::nullopt;
  if (models.size() > 1)
    throw Error(ErrorCode::kInvalidArgument, cat(where, ": it has several .gguf files: ", joined(models),
                                                 "; name one: ", id.repository(), "/", models.front()));
  return Weights{parts_of(models.front(), files, where), models.front()};
}

[[noreturn]] void no_weights(const Names& files, const std::string& where) {
  Names others;
  for (const std::string& name : files)
    if (name.ends_with(".safetensors") || name.ends_with(".bin") || name.ends_with(".pt") ||
        name.ends_with(".pth") || name.ends_with(".msgpack") || name.ends_with(".h5"))
      others.push_back(name);
  throw Error(ErrorCode::kNotFound, cat(where, ": no weights: neither ", kSafetensors.whole, " nor ",
                                        kSafetensors.index, " nor a .gguf nor ", kPickled.whole,
                                        others.empty() ? "" : cat("; found ", joined(others))));
}

}  // namespace

std::vector<std::string> small_files(const std::vector<std::string>& files) {
  Names small;
  std::copy_if(files.begin(), files.end(), std::back_inserter(small), is_small);
  for (const Format& format : {kSafetensors, kPickled}) {
    if (!has(files, format.index)) continue;
    small.push_back(format.index);
    break;
  }
  return small;
}

bool has_tokenizer(const std::vector<std::string>& files) {
  return std::any_of(files.begin(), files.end(), [](const std::string& name) {
    return name == "tokenizer.json" || name == "tokenizer.model" ||
           (name.ends_with(kTiktoken) && name.find('/') == std::string::npos);
  });
}

Weights weight_files(const std::vector<std::string>& files, const ModelId& id,
                     const std::function<std::string(const std::string& file)>& read) {
  const std::string where = "model " + id.repository();
  if (!id.file.empty()) return named_gguf(files, id, where);
  if (auto weights = weights_of(kSafetensors, files, read, where)) return *weights;
  if (auto weights = only_gguf(files, id, where)) return *weights;
  if (auto weights = weights_of(kPickled, files, read, where)) return *weights;
  no_weights(files, where);
}

}  // namespace lmdeploy
