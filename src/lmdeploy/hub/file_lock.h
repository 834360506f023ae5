// The lock files that huggingface_hub uses too: flock() on an empty file.
#pragma once

#include <functional>
#include <string>

namespace lmdeploy {

/// Holds the lock while it lives. The file stays: others may be waiting on it.
class FileLock {
 public:
  /// Makes the file and its folders, and waits; `pause` is called between looks. Throws Error(kIo).
  FileLock(const std::string& path, const std::function<void()>& pause);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace lmdeploy
