// ConfigReader and token_ids_from().
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kNestedKeys[] = {"text_config", "llm_config", "language_config", "thinker_config"};

// "an integer (1.5)", "a string ("abc")", "an array": what was found, with its value where that is short.
std::string describe(const Json& value) {
  if (value.is_string()) return cat("a string (", quote(value.get_string()), ")");
  if (value.is_number() || value.is_bool()) return cat(json_kind(value), " (", to_json_text(value), ")");
  return std::string(json_kind(value));
}

[[noreturn]] void wrong_kind(std::string_view where, std::string_view key, const Json& found,
                             std::string_view expected) {
  throw Error(ErrorCode::kInvalidData,
              cat(where, ": key ", quote(key), " is ", describe(found), ", expected ", expected));
}

// An integer, or a double without a fraction (1e3): some writers store every number as a double.
std::optional<int64_t> integer_in(const Json& value) {
  if (value.is_int64()) return value.get_int64();
  if (!value.is_double()) return std::nullopt;
  const double number = value.get_double();
  const bool exact = std::trunc(number) == number && std::abs(number) <= 0x1p53;
  return exact ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
}

// The innermost text config: text_config, or thinker_config.text_config.
const JsonObject* find_nested(const JsonObject& config) {
  for (const std::string_view key : kNestedKeys) {
    const Json* value = config.if_contains(key);
    if (value == nullptr || !value->is_object()) continue;
    const JsonObject* inner = find_nested(value->get_object());
    return inner != nullptr ? inner : &value->get_object();
  }
  return nullptr;
}

int token_id(const Json& value, std::string_view key, std::string_view where) {
  const std::optional<int64_t> id = integer_in(value);
  if (!id || *id < -1 || *id > std::numeric_limits<int>::max())
    wrong_kind(where, key, value, "a token id: an integer from 0 to 2147483647");
  return static_cast<int>(*id);
}

}  // namespace

ConfigReader::ConfigReader(const Json& config, std::string where)
    : ConfigReader(config, std::move(where), "", std::make_shared<Keys>()) {}

ConfigReader::ConfigReader(const Json& config, std::string where, std::string prefix,
                           std::shared_ptr<Keys> keys_read)
    : top_(config.if_object()),
      where_(std::move(where)),
      prefix_(std::move(prefix)),
      keys_read_(std::move(keys_read)) {
  if (top_ == nullptr)
    throw Error(ErrorCode::kInvalidData,
                cat(where_, ": the config is ", json_kind(config), ", expected an object"));
  nested_ = find_nested(*top_);
}

const Json* ConfigReader::find_stored(std::string_view key) const {
  keys_read_->insert(cat(prefix_, key));
  const Json* value = nested_ == nullptr ? nullptr : nested_->if_contains(key);
  return value != nullptr ? value : top_->if_contains(key);
}

const Json* ConfigReader::find(std::string_view key) const {
  const Json* value = find_stored(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const Json* ConfigReader::find_at_top(std::string_view key) const {
  const Json* value = top_->if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const Json* ConfigReader::find_any(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    if (const Json* value = find(key)) return value;
  }
  return nullptr;
}

bool ConfigReader::has(std::string_view key) const { return find(key) != nullptr; }

bool ConfigReader::is_null(std::string_view key) const {
  const Json* value = find_stored(key);
  return value != nullptr && value->is_null();
}

int64_t ConfigReader::get(std::string_view key, int64_t fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  const std::optional<int64_t> number = integer_in(*value);
  if (!number) wrong_kind(where_, key, *value, "an integer");
  return *number;
}

int ConfigReader::get(std::string_view key, int fallback) const {
  const int64_t number = get(key, int64_t{fallback});
  if (!std::in_range<int>(number)) wrong_kind(where_, key, *find(key), "an integer of 32 bits");
  return static_cast<int>(number);
}

double ConfigReader::get(std::string_view key, double fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number()) wrong_kind(where_, key, *value, "a number");
  const auto number = value->to_number<double>();
  if (!std::isfinite(number)) wrong_kind(where_, key, *value, "a finite number");
  return number;
}

bool ConfigReader::get(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) wrong_kind(where_, key, *value, "true or false");
  return value->get_bool();
}

std::string ConfigReader::get(std::string_view key, const char* fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) wrong_kind(where_, key, *value, "a string");
  return std::string(value->get_string());
}

int64_t ConfigReader::require_int(std::string_view key) const {
  if (!has(key))
    throw Error(ErrorCode::kInvalidData,
                cat(where_, ": key ", quote(key), " is missing, expected an integer"));
  return get(key, int64_t{0});
}

ConfigReader ConfigReader::object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr)
    throw Error(ErrorCode::kInvalidData,
                cat(where_, ": key ", quote(key), " is missing, expected an object"));
  if (!value->is_object()) wrong_kind(where_, key, *value, "an object");
  return {*value, cat(where_, ": ", key), cat(prefix_, key, "."), keys_read_};
}

std::string ConfigReader::architecture() const {
  keys_read_->insert(cat(prefix_, "architectures"));
  const Json* list = top_->if_contains("architectures");
  if (list != nullptr && !list->is_null()) {
    if (!list->is_array()) wrong_kind(where_, "architectures", *list, "an array of strings");
    const JsonArray& names = list->get_array();
    if (!names.empty() && !names[0].is_string()) wrong_kind(where_, "architectures[0]", names[0], "a string");
    if (!names.empty()) return std::string(names[0].get_string());
  }
  // "modeling_qwen.QWenLMHeadModel"
  const Json* map = top_->if_contains("auto_map");
  const Json* entry =
      map != nullptr && map->is_object() ? map->get_object().if_contains("AutoModelForCausalLM") : nullptr;
  if (entry == nullptr || !entry->is_string()) return "";
  const std::string_view path = entry->get_string();
  return std::string(path.substr(path.rfind('.') + 1));  // npos + 1 is 0
}

bool names_text_config(std::string_view key) {
  return std::find(std::begin(kNestedKeys), std::end(kNestedKeys), key) != std::end(kNestedKeys);
}

JsonObject& text_config(JsonObject& config) {
  const JsonObject* nested = find_nested(config);
  return nested == nullptr ? config : const_cast<JsonObject&>(*nested);  // a part of `config`
}

std::vector<int> token_ids_from(const Json& config, std::string_view key, std::string_view where) {
  const ConfigReader reader(config, std::string(where));
  std::vector<int> ids;
  const Json* value = reader.find(key);
  if (value == nullptr) return ids;
  const auto add = [&](const Json& item) {
    if (const int id = token_id(item, key, where); id >= 0) ids.push_back(id);  // -1: "none" in old configs
  };
  if (value->is_array()) {
    for (const Json& item : value->get_array()) add(item);
  } else {
    add(*value);
  }
  return ids;
}

}  // namespace lmdeploy
