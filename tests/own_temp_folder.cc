// Part of every test program: testing::TempDir() is a folder of this process, so that tests which run side by
// side do not meet in their files. It goes when the program ends.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace {

class OwnTempFolder {
 public:
  OwnTempFolder() {
    std::error_code error;
    std::string pattern = (std::filesystem::temp_directory_path(error) / "lmdeploy-test-XXXXXX").string();
    if (error || ::mkdtemp(pattern.data()) == nullptr) return;
    path_ = pattern;
    ::setenv("TEST_TMPDIR", path_.c_str(), 1);
  }
  ~OwnTempFolder() {
    std::error_code ignored;
    if (owner_ == ::getpid() && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

 private:
  const pid_t owner_ = ::getpid();  // not a child that ends as its parent would
  std::string path_;
};

const OwnTempFolder own_temp_folder;

}  // namespace
