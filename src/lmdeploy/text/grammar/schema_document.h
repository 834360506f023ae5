// A JSON schema as written: its places, its references, and which combinations of its parts a value may
// follow.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy::grammar {

/// Schemas that all hold; no repeats; none without effect. Empty: anything goes.
using SchemaSet = std::vector<const Json*>;

/// Objects whose own keywords all hold; the keywords that combine schemas ($ref, allOf, anyOf, oneOf) have
/// been followed.
using Branch = std::vector<const JsonObject*>;

/// Keeps pointers into `root`, which must outlive it. One thread at a time.
class SchemaDocument {
 public:
  SchemaDocument(const Json& root, std::string_view where, bool strict);

  const Json& root() const { return root_; }
  bool strict() const { return strict_; }

  /// The place of a value inside the document: "where#/properties/a".
  std::string place(const void* value) const;
  [[noreturn]] void fail(const void* value, std::string_view keyword, std::string_view found,
                         std::string_view expected) const;

  /// Refuses NaN and infinity in `value`, which no JSON text can hold.
  void check_finite(const Json& value) const;

  /// `schema`, checked to be an object or a boolean, added to `set`.
  void add(SchemaSet& set, const Json& schema) const;
  /// What a $ref in `object` names.
  const Json& target(const JsonObject& object) const;
  /// The ways in which all of `set` can hold; none: there is no way.
  std::vector<Branch> branches(const SchemaSet& set) const;
  /// Refuses keywords that would have to act and do not. Those that only say something are listed in
  /// `warnings`, or refused when strict.
  void check_keywords(const JsonObject& object, std::vector<std::string>& warnings) const;

 private:
  struct Expansion;
  struct Step;
  bool is_known(const Expansion& expansion, const Step& step) const;
  bool expand_one(Expansion& expansion, Step step) const;
  void expand(Expansion& expansion, std::vector<Branch>& out) const;
  const JsonArray& alternatives(const JsonObject& object, std::string_view keyword) const;

  const Json& root_;
  const std::string where_;
  const bool strict_;
  mutable std::unordered_map<const void*, std::string> places_;  // of all values; filled when first asked for
};

/// A JSON text's value by an RFC 6901 pointer; nullptr when there is none.
const Json* find_by_pointer(const Json& root, std::string_view pointer);
std::string escape_pointer_token(std::string_view token);

}  // namespace lmdeploy::grammar
