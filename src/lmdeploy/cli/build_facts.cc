#include "lmdeploy/cli/build_facts.h"

#include "lmdeploy/cli/git_version.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {

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
  return facts;
}

}  // namespace lmdeploy
