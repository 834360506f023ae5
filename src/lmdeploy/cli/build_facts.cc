#include "lmdeploy/cli/build_facts.h"

#include <cstdlib>
#include <sstream>
#include <string>

#include "lmdeploy/cli/git_version.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/pipeline/device.h"

namespace lmdeploy {
namespace {

// CMAKE_CUDA_ARCHITECTURES: "75 90-real 80-virtual"; without a suffix both kinds of code.
void read_architectures(const std::string& list, BuildFacts& facts) {
  std::istringstream words(list);
  for (std::string word; words >> word;) {
    const int number = std::atoi(word.c_str());
    const VersionPair arch = {number / 10, number % 10};
    if (number == 0) continue;  // "all", "native"
    if (word.find("-virtual") == std::string::npos) facts.gpu_archs.push_back(arch);
    if (word.find("-real") == std::string::npos) facts.ptx_archs.push_back(arch);
  }
}

}  // namespace

BuildFacts build_facts() {
  BuildFacts facts;
  facts.version = LMDEPLOY_VERSION;
  facts.git_hash = LMDEPLOY_GIT_HASH;
  facts.compiler = cat("GCC ", __VERSION__);
#ifdef __clang__
  facts.compiler = cat("Clang ", __VERSION__);
#endif
  facts.build_type = LMDEPLOY_BUILD_TYPE;
  facts.sanitizers = LMDEPLOY_SANITIZERS;
  const int toolkit = cuda_toolkit_version();
  if (toolkit > 0) facts.cuda = VersionPair{toolkit / 1000, toolkit % 1000 / 10};
  read_architectures(LMDEPLOY_CUDA_ARCHITECTURES, facts);
  return facts;
}

}  // namespace lmdeploy
