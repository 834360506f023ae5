// What this machine can do, measured in the same run as the benchmarks that are compared with it. For
// benchmarks only.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/core/tensor.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

/// All CPUs, shared by the benchmarks of the program.
inline std::shared_ptr<ThreadPool> bench_threads() {
  static const auto pool = std::make_shared<ThreadPool>();
  return pool;
}
inline const Kernels& bench_kernels(bool int8_activations = false) {
  static const std::unique_ptr<Kernels> kernels[] = {
      make_cpu_kernels(bench_threads()), make_cpu_kernels(bench_threads(), {.int8_activations = true})};
  return *kernels[int8_activations ? 1 : 0];
}

/// Seconds that body(worker) takes on all threads together.
template <typename Body>
double seconds_of(const Body& body) {
  const auto begin = std::chrono::steady_clock::now();
  bench_threads()->run(body);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Reads a thread's share of `words` as `streams` interleaved runs.
inline void read_streams(const uint64_t* base, int64_t words, int64_t streams) {
  const int64_t length = words / streams / 8 * 8;
  uint64_t sums[8] = {};
  for (int64_t i = 0; i < length; i += 8)
    for (int64_t s = 0; s < streams; ++s)
      for (int64_t j = 0; j < 8; ++j) sums[j] ^= base[s * length + i + j];
  benchmark::DoNotOptimize(sums);
}

/// Bytes per second that all threads read from memory together: the best of 1, 2 and 4 streams each over 256
/// MiB.
inline double probe_read_bandwidth() {
  constexpr int64_t kBytes = int64_t{256} << 20;
  const Tensor memory(DType::kU8, {kBytes});
  std::memset(memory.view().data(), 1, static_cast<size_t>(kBytes));
  const int64_t words = kBytes / 8 / bench_threads()->num_threads();
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    for (const int64_t streams : {1, 2, 4}) {
      const auto read = [&](int worker) {
        read_streams(memory.span<uint64_t>().data() + worker * words, words, streams);
      };
      best = std::min(best, seconds_of(read));
    }
  }
  return static_cast<double>(kBytes) / best;
}

#if defined(__x86_64__)
typedef float Wide8 __attribute__((vector_size(32)));
typedef float Wide16 __attribute__((vector_size(64)));

// Twelve chains hide the latency of a multiply-add on any of today's processors.
#define LMD_FMA_CHAINS(name, isa, type)                                                                \
  __attribute__((target(isa), noinline)) inline void name(int64_t steps) {                             \
    type sums[12] = {};                                                                                \
    type a = type{} + 0.5f, b = type{} + 1.0f;                                                         \
    for (int64_t i = 0; i < steps; ++i) {                                                              \
      __asm__ volatile("" : "+x"(a), "+x"(b));                                                         \
      for (type & sum : sums) __asm__ volatile("vfmadd231ps %1, %2, %0" : "+v"(sum) : "v"(a), "v"(b)); \
    }                                                                                                  \
    for (type & sum : sums) __asm__ volatile("" : : "v"(sum));                                         \
  }
LMD_FMA_CHAINS(fma_chains_avx2, "avx2,fma", Wide8)
LMD_FMA_CHAINS(fma_chains_avx512, "avx512f", Wide16)
#undef LMD_FMA_CHAINS

// The same for byte products; without VNNI two instructions to 16-bit sums.
#define LMD_DOT_CHAINS(name, isa, type, ...)                                       \
  __attribute__((target(isa), noinline)) inline void name(int64_t steps) {         \
    type sums[12] = {};                                                            \
    type a = type{} + 0.5f, b = type{} + 1.0f;                                     \
    for (int64_t i = 0; i < steps; ++i) {                                          \
      __asm__ volatile("" : "+x"(a), "+x"(b));                                     \
      for (type & sum : sums) {                                                    \
        type product{};                                                            \
        __asm__ volatile(__VA_ARGS__ : "+v"(sum), "+v"(product) : "v"(a), "v"(b)); \
      }                                                                            \
    }                                                                              \
    for (type & sum : sums) __asm__ volatile("" : : "v"(sum));                     \
  }
LMD_DOT_CHAINS(dot_chains_avx2, "avx2", Wide8, "vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0")
LMD_DOT_CHAINS(dot_chains_avx2vnni, "avx2,avxvnni", Wide8, "%{vex%} vpdpbusd %2, %3, %0")
LMD_DOT_CHAINS(dot_chains_avx512, "avx512bw", Wide16, "vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0")
LMD_DOT_CHAINS(dot_chains_avx512vnni, "avx512bw,avx512vnni", Wide16, "vpdpbusd %2, %3, %0")
#undef LMD_DOT_CHAINS
#endif

/// f32 operations per second of all threads together (a multiply-add is two); 0 where it cannot be measured.
inline double probe_f32_flops() {
#if defined(__x86_64__)
  const bool wide = cpu_isa_available(CpuIsa::kAvx512);
  if (!cpu_isa_available(CpuIsa::kAvx2)) return 0;
  constexpr int64_t kSteps = 4000000;
  double best = 1e9;
  for (int i = 0; i < 5; ++i)
    best =
        std::min(best, seconds_of([&](int) { wide ? fma_chains_avx512(kSteps) : fma_chains_avx2(kSteps); }));
  return static_cast<double>(kSteps * 12 * 2 * (wide ? 16 : 8) * bench_threads()->num_threads()) / best;
#else
  return 0;
#endif
}

/// Operations per second of byte products (a product and an addition are two); 0 where there are none.
inline double probe_int8_ops() {
#if defined(__x86_64__)
  constexpr int64_t kSteps = 2000000;
  const CpuIsa isa = best_cpu_isa();
  if (isa == CpuIsa::kPortable) return 0;
  const auto chains = isa == CpuIsa::kAvx512Vnni ? dot_chains_avx512vnni
                      : isa == CpuIsa::kAvx512   ? dot_chains_avx512
                      : isa == CpuIsa::kAvx2Vnni ? dot_chains_avx2vnni
                                                 : dot_chains_avx2;
  const bool wide = isa == CpuIsa::kAvx512Vnni || isa == CpuIsa::kAvx512;
  double best = 1e9;
  for (int i = 0; i < 5; ++i) best = std::min(best, seconds_of([&](int) { chains(kSteps); }));
  return static_cast<double>(kSteps * 12 * 2 * (wide ? 64 : 32) * bench_threads()->num_threads()) / best;
#else
  return 0;
#endif
}

struct MachinePeaks {
  double bytes_per_s;
  double flops;
  double int8_ops;
};
inline const MachinePeaks& machine_peaks() {
  static const MachinePeaks peaks = {probe_read_bandwidth(), probe_f32_flops(), probe_int8_ops()};
  return peaks;
}

/// Adds GB/s and GFLOP/s of an iteration, each with its share of the machine's peak in percent.
inline void report_rates(benchmark::State& state, double bytes, double flops, bool in_int8 = false) {
  using benchmark::Counter;
  const double iterations = static_cast<double>(state.iterations());
  const auto rate = [&](double amount) { return Counter(amount * iterations, Counter::kIsRate); };
  state.counters["GB/s"] = rate(bytes * 1e-9);
  state.counters["read%"] = rate(100 * bytes / machine_peaks().bytes_per_s);
  if (flops == 0) return;
  state.counters["GFLOP/s"] = rate(flops * 1e-9);
  const double peak = in_int8 ? machine_peaks().int8_ops : machine_peaks().flops;
  if (peak > 0) state.counters[in_int8 ? "dot%" : "fma%"] = rate(100 * flops / peak);
}

/// The working set that no cache holds: benchmarks take turns on copies of this many bytes in all.
constexpr int64_t kColdBytes = int64_t{160} << 20;

}  // namespace lmdeploy
