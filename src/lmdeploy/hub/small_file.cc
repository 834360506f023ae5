#include "lmdeploy/hub/small_file.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw Error(ErrorCode::kIo, cat("make folder ", path, ": ", error.message()));
}

void replace_file(const std::string& path, std::string_view text) {
  make_folders(std::filesystem::path(path).parent_path().string());
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  const bool made = fd >= 0;
  bool written = made && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  written = written && ::fchmod(fd, 0644) == 0;
  if (made) written = ::close(fd) == 0 && written;
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  if (made) ::unlink(temporary.c_str());
  throw Error(ErrorCode::kIo, cat("write ", path, ": ", std::strerror(error)));
}

}  // namespace lmdeploy
