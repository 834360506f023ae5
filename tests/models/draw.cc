#include "draw.h"

#include <cstdlib>

namespace lmdeploy::testing {

uint64_t test_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("LMDEPLOY_TEST_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : entropy_bits() % 1000000;
  }();
  return seed;
}

}  // namespace lmdeploy::testing
