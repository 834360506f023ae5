// What this machine gives to a program that computes with models: `lmdeploy bench machine`.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "lmdeploy/bench/proc_files.h"

namespace lmdeploy {

struct MachineSpeedOptions {
  int num_threads = 0;                          // the most; 0: all CPUs that this process may use
  int64_t memory_mib = mib_beyond_caches(512);  // that are read, for each page size
  int rounds = 7;                               // samples of each figure
};

/// Prints as it measures.
void measure_machine(const MachineSpeedOptions& options, std::ostream& out);

/// The head of a benchmark's output: processor, instruction set, CPUs, memory and load.
void print_machine(std::ostream& out, int num_threads);

class OtherLoad;
/// The end of it: what other programs took meanwhile, with a warning where that spoils the figures.
void print_other_load(std::ostream& out, const OtherLoad& load);

}  // namespace lmdeploy
