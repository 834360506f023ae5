#include "lmdeploy/cli/console.h"

#include <ostream>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

void check_written(std::ostream& out) {
  if (!out.flush()) throw Error(ErrorCode::kIo, "cannot write to standard output: it is closed or full");
}

}  // namespace lmdeploy
