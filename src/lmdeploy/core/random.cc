#include "lmdeploy/core/random.h"

#include <random>

namespace lmdeploy {

uint64_t entropy_bits() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace lmdeploy
