// Where a JSON object ends, in text that arrives in pieces.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace lmdeploy {

/// Follows brackets and strings, and marks the members of the outermost object. It lets some text through
/// that is not JSON (numbers, commas): whoever needs JSON parses what it found. Each byte is looked at once.
class JsonScanner {
 public:
  enum class State {
    kMore,
    kKey,  // the byte was the ':' after a key of the outermost object
    kDone,
    kBroken,
  };

  /// A member of the outermost object: byte ranges counted from the object's '{'. The key's is that between
  /// its quotes, as written; the value's has no white space around it.
  struct Member {
    size_t key_begin = 0, key_end = 0;
    size_t value_begin = 0, value_end = 0;

    std::string_view key(std::string_view object) const {
      return object.substr(key_begin, key_end - key_begin);
    }
    std::string_view value(std::string_view object) const {
      return object.substr(value_begin, value_end - value_begin);
    }
  };

  /// The next byte. After kDone (the byte was the object's '}') or kBroken there is no next one.
  State push(char byte);
  /// Of the bytes so far, the last one included.
  size_t size() const { return size_; }
  const std::vector<Member>& members() const { return members_; }
  /// After kMore: the member whose value has begun, which ends with the bytes so far. nullptr: there is none.
  const Member* open_member() const { return in_value_ ? &member_ : nullptr; }
  /// After kKey. `object`: all bytes so far.
  std::string_view key(std::string_view object) const { return member_.key(object); }

 private:
  enum class Part { kKey, kValue };  // of a member

  State push_in_string(char byte);
  State open(char bracket);
  State close(char bracket);
  bool mark(char byte);

  size_t size_ = 0;
  std::vector<char> brackets_;  // open ones
  bool in_string_ = false, escaped_ = false;
  Part part_ = Part::kKey;
  bool in_value_ = false;  // a byte of the value has been seen
  Member member_;
  std::vector<Member> members_;
};

}  // namespace lmdeploy
