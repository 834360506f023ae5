// Random numbers that depend only on (seed, counter): a draw never depends on what else is running.
#pragma once

#include <cstdint>

namespace lmdeploy {

/// Mixes 64 bits (the finaliser of SplitMix64; Steele, Lea, Flood 2014).
inline uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// 64 random bits for (seed, counter).
inline uint64_t random_bits(uint64_t seed, uint64_t counter) {
  return mix_bits(mix_bits(seed + 0x9e3779b97f4a7c15ull) + (counter + 1) * 0x9e3779b97f4a7c15ull);
}

/// Uniform in [0, 1), a multiple of 2^-53.
inline double random_uniform(uint64_t seed, uint64_t counter) {
  return static_cast<double>(random_bits(seed, counter) >> 11) * 0x1p-53;
}

/// A stream of the above for tests and initialisers.
class Rng {
 public:
  explicit Rng(uint64_t seed) : seed_(seed) {}
  uint64_t bits() { return random_bits(seed_, counter_++); }
  double uniform() { return random_uniform(seed_, counter_++); }
  /// Uniform integer in [0, bound); bound > 0.
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(bits()) * bound) >> 64);
  }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

/// 64 bits from the system's entropy source, for requests without a seed.
uint64_t entropy_bits();

}  // namespace lmdeploy
