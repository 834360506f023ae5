#include "lmdeploy/core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

[[noreturn]] void throw_system(const std::string& what, const std::string& path, int error) {
  throw Error(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              cat(what, " ", path, ": ", std::strerror(error)));
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  /// Without O_NONBLOCK a named pipe would wait here for a writer.
  explicit Descriptor(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) throw_system("open", path, errno);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// What a clone without Git LFS has in place of a large file.
void refuse_lfs_pointer(const Descriptor& fd, const std::string& path) {
  constexpr std::string_view kBegin = "version https://git-lfs";
  char begin[kBegin.size()] = {};
  const ssize_t got = ::pread(fd.get(), begin, sizeof(begin), 0);
  if (got == static_cast<ssize_t>(kBegin.size()) && std::string_view(begin, kBegin.size()) == kBegin)
    throw Error(ErrorCode::kInvalidData,
                cat("open ", path, ": a Git LFS pointer, not the file; fetch it with git lfs pull"));
}

size_t regular_file_size(const Descriptor& fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw_system("stat", path, errno);
  if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::kIo, cat("open ", path, ": not a regular file"));
  refuse_lfs_pointer(fd, path);
  return static_cast<size_t>(info.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor fd(path);
  size_ = regular_file_size(fd, path);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) throw_system("map", path, errno);
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop(std::span<const std::byte> range) const {
  constexpr size_t kPage = 4096;
  const auto begin = (reinterpret_cast<size_t>(range.data()) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<size_t>(range.data()) + range.size()) / kPage * kPage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string read_file(const std::string& path, size_t max_bytes) {
  const Descriptor fd(path);
  const size_t size = regular_file_size(fd, path);
  if (size > max_bytes)
    throw Error(ErrorCode::kInvalidData,
                cat("read ", path, ": ", size, " bytes, at most ", max_bytes, " expected"));
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd.get(), text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system("read", path, errno);
    if (got == 0) break;  // the file shrank meanwhile
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

}  // namespace lmdeploy
