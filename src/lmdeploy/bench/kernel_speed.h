// The speed of single ops as a share of what the machine gives beside them: `lmdeploy bench kernels`.
#pragma once

#include <iosfwd>
#include <string>

#include "lmdeploy/bench/proc_files.h"

namespace lmdeploy {

struct KernelSpeedOptions {
  std::string filter;   // a regular expression found in the name; "": all
  int num_threads = 0;  // 0: all CPUs that this process may use
  int64_t memory_mib = mib_beyond_caches(160);
  int sample_ms = 20;  // of each of the samples
  bool list = false;   // only names
};

/// Prints a line for each case as soon as it is measured. Throws Error(kInvalidArgument) for a filter that is
/// no regular expression or that no name matches.
void measure_kernels(const KernelSpeedOptions& options, std::ostream& out);

}  // namespace lmdeploy
