// Runs a fuzz target without libFuzzer: replays the seeds, then mutates them with a seeded generator for a
// given time.
//   NAME_fuzz SEED_FOLDER [--seconds N] [--seed S]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lmdeploy/core/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t kMaxInput = size_t{1} << 20;

std::vector<Bytes> read_seeds(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

// One random edit: flip, overwrite with an interesting value, delete, duplicate, insert, splice or truncate.
void mutate(Bytes& input, const std::vector<Bytes>& seeds, lmdeploy::Rng& rng) {
  if (input.empty()) input.push_back(0);
  const size_t at = rng.below(input.size());
  const size_t length = std::min<size_t>(1 + rng.below(rng.below(8) == 0 ? 256 : 8), input.size() - at);
  const auto from = input.begin() + static_cast<std::ptrdiff_t>(at);
  switch (rng.below(8)) {
    case 0:
      input[at] ^= static_cast<uint8_t>(1u << rng.below(8));
      break;
    case 1:
      input[at] = static_cast<uint8_t>(rng.bits());
      break;
    case 2: {
      static constexpr uint64_t kValues[] = {0,          1,          0x7f,  0x80,      0xff,
                                             0x7fffffff, 0xffffffff, ~0ull, 1ull << 62};
      const uint64_t value = kValues[rng.below(std::size(kValues))];
      std::memcpy(&input[at], &value, std::min<size_t>(size_t{1} << rng.below(4), input.size() - at));
      break;
    }
    case 3:
      input.erase(from, from + static_cast<std::ptrdiff_t>(length));
      break;
    case 4: {
      const Bytes copy(from, from + static_cast<std::ptrdiff_t>(length));
      input.insert(from, copy.begin(), copy.end());
      break;
    }
    case 5:
      input.insert(from, length, static_cast<uint8_t>(rng.bits()));
      break;
    case 6: {
      const Bytes& other = seeds[rng.below(seeds.size())];
      if (!other.empty())
        input.insert(from, other.begin() + static_cast<std::ptrdiff_t>(rng.below(other.size())), other.end());
      break;
    }
    default:
      input.resize(at);
      break;
  }
  if (input.size() > kMaxInput) input.resize(kMaxInput);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s SEED_FOLDER [--seconds N] [--seed S]\n", argv[0]);
    return 2;
  }
  double seconds = 2;
  uint64_t seed = 1;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = std::atof(argv[i + 1]);
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  const std::vector<Bytes> seeds = read_seeds(argv[1]);
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds in %s\n", argv[1]);
    return 1;
  }
  for (const Bytes& s : seeds) LLVMFuzzerTestOneInput(s.data(), s.size());
  lmdeploy::Rng rng(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    Bytes input = seeds[rng.below(seeds.size())];
    for (uint64_t edits = 1 + rng.below(6); edits > 0; --edits) mutate(input, seeds, rng);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%s: %llu mutated inputs of %zu seeds, no crash\n", argv[0],
              static_cast<unsigned long long>(runs), seeds.size());
  return 0;
}
