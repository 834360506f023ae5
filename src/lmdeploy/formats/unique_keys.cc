#include "lmdeploy/formats/unique_keys.h"

#include <boost/json/basic_parser_impl.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

// A Boost.JSON parse handler (its required names) that remembers the keys of every open object.
class KeyHandler {
 public:
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);
  using Code = boost::system::error_code;
  using Text = boost::json::string_view;

  const std::string* duplicate() const { return found_ ? &key_ : nullptr; }

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) {
    open_.emplace_back();
    return true;
  }
  bool on_object_end(size_t, Code&) {
    open_.pop_back();
    return true;
  }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(size_t, Code&) { return true; }
  bool on_key_part(Text part, size_t size, Code&) {
    if (part.size() == size) key_.clear();  // the first part: `size` counts all so far
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(Text part, size_t size, Code& error) {
    if (part.size() == size) key_.clear();
    key_.append(part.data(), part.size());
    found_ = !open_.back().insert(key_).second;
    if (found_) error = boost::json::error::syntax;  // stops the parser; duplicate() tells why
    return !found_;
  }
  bool on_string_part(Text, size_t, Code&) { return true; }
  bool on_string(Text, size_t, Code&) { return true; }
  bool on_number_part(Text, Code&) { return true; }
  bool on_int64(int64_t, Text, Code&) { return true; }
  bool on_uint64(uint64_t, Text, Code&) { return true; }
  bool on_double(double, Text, Code&) { return true; }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(Text, Code&) { return true; }
  bool on_comment(Text, Code&) { return true; }

 private:
  std::vector<std::unordered_set<std::string>> open_;
  std::string key_;
  bool found_ = false;
};

}  // namespace

void refuse_duplicate_keys(std::string_view text, std::string_view where) {
  boost::json::parse_options options;
  options.max_depth = 256;  // as parse_json()
  boost::json::basic_parser<KeyHandler> parser(options);
  boost::system::error_code error;
  parser.write_some(/*more=*/false, text.data(), text.size(), error);
  if (const std::string* key = parser.handler().duplicate())
    throw Error(ErrorCode::kInvalidData, cat(where, ": key ", quote(*key), " appears twice in one object"));
}

}  // namespace lmdeploy
