// Fields of a JSON object, with errors that say where and what was expected.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

/// A view: neither owns the object nor outlives it. A missing field and null are the same; a field of another
/// type throws Error(kInvalidData).
class JsonFields {
 public:
  /// `where` begins every message: "/m/tokenizer.json: decoder". Throws unless `value` is an object.
  JsonFields(const Json& value, std::string where);

  const std::string& where() const { return where_; }
  /// nullptr when missing or null.
  const Json* find(std::string_view key) const;
  const Json& require(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  bool get_bool(std::string_view key, bool fallback) const { return get_bool(key).value_or(fallback); }
  std::optional<std::string> get_string(std::string_view key) const;
  std::string require_string(std::string_view key) const;
  /// An integer in [0, max].
  std::optional<int> get_count(std::string_view key, int max) const;
  /// Empty array when missing.
  const JsonArray& get_array(std::string_view key) const;
  /// The object in a field, named as part of this one.
  JsonFields child(std::string_view key) const;

  [[noreturn]] void fail(std::string_view key, const Json& found, std::string_view expected) const;

 private:
  const JsonObject* object_;
  std::string where_;
};

}  // namespace lmdeploy
