#include "lmdeploy/bench/kernel_speed.h"

#include <algorithm>
#include <ostream>
#include <regex>

#include "lmdeploy/bench/kernel_cases.h"
#include "lmdeploy/bench/machine_probe.h"
#include "lmdeploy/bench/machine_speed.h"
#include "lmdeploy/bench/proc_files.h"
#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr int kSamples = 5;

std::regex regex_of(const std::string& filter) {
  try {
    return std::regex(filter);
  } catch (const std::regex_error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--filter ", filter, " is not a regular expression: ", error.what()));
  }
}

KernelCases choose_cases(const std::string& filter) {
  KernelCases cases = kernel_cases();
  const std::regex wanted = regex_of(filter);
  std::erase_if(cases, [&](const KernelCase& c) { return !std::regex_search(c.name, wanted); });
  if (cases.empty())
    throw Error(ErrorCode::kInvalidArgument,
                cat("--filter ", filter, ": no kernel has such a name; --list prints the names"));
  return cases;
}

// Seconds of a call: samples of about `sample_ms`, after a first call that nobody times.
Spread measure(const KernelCall& call, int sample_ms) {
  call.run();
  const double once = std::max(1e-9, seconds_of(call.run));
  const int calls = static_cast<int>(std::clamp(1e-3 * sample_ms / once, 1.0, 1e6));
  return spread_of(kSamples, [&] {
    return seconds_of([&] {
             for (int i = 0; i < calls; ++i) call.run();
           }) /
           calls;
  });
}

std::string share_text(double share) { return cat(fixed(100 * share, 0), " %"); }

// The limit that takes longest, and what share of the time it explains.
std::string share_of_limit(const KernelCall& call, double seconds, const MachineLimits& limits) {
  const double read_s = call.bytes / limits.bytes_per_s;
  const double peak = limits.ops(call.numbers);
  const double dot_s = peak > 0 ? call.flops / peak : 0;
  if (dot_s > read_s) return cat(share_text(dot_s / seconds), " of ", to_string(call.numbers));
  return cat(share_text(read_s / seconds), " of read");
}

void print_line(std::ostream& out, const std::string& name, const KernelCall& call, const Spread& seconds,
                const MachineLimits& limits) {
  out << TextLine()
             .left(name, 48)
             .right(three_digits(1e6 * seconds.median), 9)
             .right(cat("+-", fixed(50 * (seconds.max - seconds.min) / seconds.median, 0), " %"), 8)
             .right(three_digits(1e-9 * call.bytes / seconds.median), 9)
             .right(call.flops > 0 ? three_digits(1e-9 * call.flops / seconds.median) : "", 9)
             .right(share_of_limit(call, seconds.median, limits), 15)
             .text()
      << std::endl;
}

}  // namespace

void measure_kernels(const KernelSpeedOptions& options, std::ostream& out) {
  const KernelCases cases = choose_cases(options.filter);
  if (options.list) {
    for (const KernelCase& c : cases) out << c.name << '\n';
    return;
  }
  const OtherLoad load;
  const int64_t cold_bytes = options.memory_mib << 20;
  KernelBench bench(options.num_threads, cold_bytes);
  print_machine(out, bench.threads().num_threads());
  MachineProbe probe(bench.threads(), cold_bytes);
  MachineLimits before = probe.measure();
  out << "limits at first: read " << three_digits(1e-9 * before.bytes_per_s) << " GB/s, f32 "
      << three_digits(1e-9 * before.f32_ops) << " GFLOP/s, bf16 " << three_digits(1e-9 * before.bf16_ops)
      << " GFLOP/s, int8 " << three_digits(1e-9 * before.int8_ops)
      << " GOP/s; the share of each line is of the limits measured before and after it\n\n"
      << TextLine()
             .left("kernel", 48)
             .right("us", 9)
             .right("", 8)
             .right("GB/s", 9)
             .right("GFLOP/s", 9)
             .right("share", 15)
             .text()
      << std::endl;
  for (const KernelCase& c : cases) {
    const KernelCall call = c.prepare(bench);
    const Spread seconds = measure(call, options.sample_ms);
    const MachineLimits after = probe.measure();
    print_line(out, c.name, call, seconds, mean_of(before, after));
    before = after;
  }
  print_other_load(out, load);
}

}  // namespace lmdeploy
