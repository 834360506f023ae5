// A file that arrives in pieces, perhaps over several runs of the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lmdeploy/hub/digest.h"

namespace lmdeploy {

/// What is known of a file before it is downloaded.
struct RemoteFile {
  std::string path;  // in the repository
  std::string url;
  int64_t size = 0;
  std::string etag;  // a hash that is checked, or another name of these bytes
};

/// Appends to a file and hashes what is in it. Throws Error(kIo).
class PartialFile {
 public:
  /// Goes on after what `path` holds, unless that is more than the whole file.
  PartialFile(const std::string& path, const RemoteFile& file);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  int64_t size() const { return size_; }
  void append(std::string_view bytes);
  /// Empties it.
  void restart();
  /// The hash agrees with the etag, if that is one. All bytes must be there.
  bool is_intact();
  /// The bytes are on the disk under `target`.
  void move_to(const std::string& target);

 private:
  void hash_what_is_there();
  [[noreturn]] void fail(const char* action) const;

  std::string path_;
  const RemoteFile& file_;
  Digest digest_;
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace lmdeploy
