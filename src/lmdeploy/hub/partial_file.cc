#include "lmdeploy/hub/partial_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

}  // namespace

void PartialFile::fail(const char* action) const {
  const int error = errno;
  std::string hint;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    hint = cat("; ", size_, " of ", file_.size, " bytes of ", file_.path,
               " are kept: make room, or choose another folder for downloads, and start again");
  throw Error(ErrorCode::kIo, cat(action, " ", path_, ": ", std::strerror(error), hint));
}

PartialFile::PartialFile(const std::string& path, const RemoteFile& file)
    : path_(path), file_(file), digest_(digest_kind(file.etag), file.size) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("write");
  try {
    hash_what_is_there();
    if (size_ > file_.size) restart();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

PartialFile::~PartialFile() { ::close(fd_); }

void PartialFile::hash_what_is_there() {
  std::vector<char> buffer(kReadBytes);
  while (true) {
    const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read");
    if (got == 0) return;
    digest_.update({buffer.data(), static_cast<size_t>(got)});
    size_ += got;
  }
}

void PartialFile::append(std::string_view bytes) {
  digest_.update(bytes);
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    size_ += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void PartialFile::restart() {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) fail("write");
  size_ = 0;
  digest_.reset();
}

bool PartialFile::is_intact() {
  const std::string found = digest_.finish();
  return found.empty() || found == file_.etag;
}

void PartialFile::move_to(const std::string& target) {
  if (::fsync(fd_) != 0 && errno != EINVAL) fail("write");
  if (std::rename(path_.c_str(), target.c_str()) != 0) fail("rename");
}

}  // namespace lmdeploy
