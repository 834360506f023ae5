#include "lmdeploy/hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"

namespace lmdeploy {
namespace {

constexpr mode_t kGroupWritable = 0664;  // users who share a cache wait for each other

/// Some programs remove their lock files: then `fd` is one that nobody else will ever open.
bool is_still(int fd, const std::string& path) {
  struct stat held {
  }, there{};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &there) == 0 && held.st_ino == there.st_ino &&
         held.st_dev == there.st_dev;
}

[[noreturn]] void fail(const std::string& path) {
  throw Error(ErrorCode::kIo, cat("lock ", path, ": ", std::strerror(errno)));
}

}  // namespace

FileLock::FileLock(const std::string& path, const std::function<void()>& pause) {
  std::error_code ignored;  // open() will say it
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  while (true) {
    if (fd_ < 0) fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kGroupWritable);
    if (fd_ < 0) fail(path);
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      if (is_still(fd_, path)) return;
      fd_ = (::close(fd_), -1);
      continue;
    }
    if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK) {
      LMD_LOG(kWarning, path, ": this file system has no locks; do not download a model twice at once");
      return;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) {
      const int error = errno;
      fd_ = (::close(fd_), -1);
      errno = error;
      fail(path);
    }
    try {
      pause();
    } catch (...) {
      ::close(fd_);
      throw;
    }
  }
}

FileLock::~FileLock() { ::close(fd_); }

}  // namespace lmdeploy
