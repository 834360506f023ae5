#include "lmdeploy/bench/dot_chains.h"

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

#if defined(__x86_64__)
namespace {

typedef float Wide8 __attribute__((vector_size(32)));
typedef float Wide16 __attribute__((vector_size(64)));

// Twelve chains hide the latency of a multiply-add on any of today's processors.
constexpr int kChains = 12;

// The instructions see: %0 the sum, %1 a place for a product, %2 and %3 the factors.
#define LMD_CHAINS(name, isa, type, ...)                                           \
  __attribute__((target(isa), noinline)) void name(int64_t steps) {                \
    type sums[kChains] = {};                                                       \
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
LMD_CHAINS(f32_avx2, "avx2,fma", Wide8, "vfmadd231ps %2, %3, %0")
LMD_CHAINS(f32_avx512, "avx512f", Wide16, "vfmadd231ps %2, %3, %0")
LMD_CHAINS(bf16_avx512, "avx512bf16", Wide16, "vdpbf16ps %2, %3, %0")
// Without VNNI two instructions to 16-bit sums.
LMD_CHAINS(int8_avx2, "avx2", Wide8, "vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0")
LMD_CHAINS(int8_avx2vnni, "avx2,avxvnni", Wide8, "%{vex%} vpdpbusd %2, %3, %0")
LMD_CHAINS(int8_avx512, "avx512bw", Wide16, "vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0")
LMD_CHAINS(int8_avx512vnni, "avx512bw,avx512vnni", Wide16, "vpdpbusd %2, %3, %0")
#undef LMD_CHAINS

}  // namespace

std::string_view to_string(DotChain::Numbers numbers) {
  if (numbers == DotChain::Numbers::kF32) return "f32";
  return numbers == DotChain::Numbers::kBF16 ? "bf16" : "int8";
}

std::vector<DotChain> dot_chains() {
  using Numbers = DotChain::Numbers;
  std::vector<DotChain> chains;
  const auto add = [&](bool available, Numbers numbers, const char* name, int64_t lanes,
                       void (*run)(int64_t)) {
    if (available) chains.push_back({numbers, name, 2 * kChains * lanes, run});
  };
  add(cpu_isa_available(CpuIsa::kAvx2), Numbers::kF32, "vfmadd231ps ymm", 8, f32_avx2);
  add(cpu_isa_available(CpuIsa::kAvx512), Numbers::kF32, "vfmadd231ps zmm", 16, f32_avx512);
  add(cpu_isa_available(CpuIsa::kAvx2), Numbers::kInt8, "vpmaddubsw + vpaddw ymm", 32, int8_avx2);
  add(cpu_isa_available(CpuIsa::kAvx512), Numbers::kInt8, "vpmaddubsw + vpaddw zmm", 64, int8_avx512);
  add(cpu_isa_available(CpuIsa::kAvx2Vnni), Numbers::kInt8, "vpdpbusd ymm", 32, int8_avx2vnni);
  add(cpu_isa_available(CpuIsa::kAvx512Vnni), Numbers::kInt8, "vpdpbusd zmm", 64, int8_avx512vnni);
  add(__builtin_cpu_supports("avx512bf16"), Numbers::kBF16, "vdpbf16ps zmm", 32, bf16_avx512);
  return chains;
}
#else
std::vector<DotChain> dot_chains() { return {}; }
#endif

}  // namespace lmdeploy
