// Random choices of a test, all from one seed.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "lmdeploy/core/random.h"

namespace lmdeploy::testing {

class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed) {}

  bool coin() { return rng_.below(2) == 1; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_.below(static_cast<uint64_t>(high - low + 1)));
  }
  double real(double low, double high) { return low + (high - low) * rng_.uniform(); }
  template <typename T>
  T any(std::initializer_list<T> choices) {
    return choices.begin()[between(0, static_cast<int64_t>(choices.size()) - 1)];
  }

 private:
  Rng rng_;
};

/// The seed of a test with random inputs: LMDEPLOY_TEST_SEED where it is set, else another one in each run.
/// A failure must name it.
uint64_t test_seed();

}  // namespace lmdeploy::testing
