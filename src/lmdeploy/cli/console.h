// Where a command writes.
#pragma once

#include <iosfwd>

namespace lmdeploy {

struct Console {
  std::ostream& out;
  std::ostream& err;
};

/// Throws Error(kIo) when what was written did not arrive (disk full, pipe closed).
void check_written(std::ostream& out);

}  // namespace lmdeploy
