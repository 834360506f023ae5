// What the facts mean: does this build run here, on what, and what is to be done.
#pragma once

#include <string>
#include <vector>

#include "lmdeploy/cli/env_facts.h"

namespace lmdeploy {

struct Verdict {
  bool usable = true;              // models run, if only on the CPU
  bool problem = false;            // something is wrong that the user should mend
  std::string line;                // the verdict in one line
  std::vector<std::string> to_do;  // most important first; empty when all is well
};

Verdict judge(const EnvFacts& facts);

/// Why this build cannot use the GPUs, in one line with found and needed versions and what to install; ""
/// when it can (or has no CUDA, or there are none).
std::string gpu_mismatch(const EnvFacts& facts);
/// Why several GPUs cannot add up by NCCL (--communicator nccl); "" when they can, or there is one.
std::string nccl_problem(const EnvFacts& facts);

}  // namespace lmdeploy
