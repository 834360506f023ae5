// Hub checkpoints written as llama.cpp's converter writes them: its names, keys and forms, by family.
#pragma once

#include <string>
#include <vector>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/gguf.h"

namespace lmdeploy::testing {

/// What the converter makes of a tensor.
enum class Form {
  kAsIs,
  kInterleaved,   // rows j and j + d/2 of each head become neighbours
  kPlusOne,       // w + 1
  kTransposed,    // [in, out] becomes [out, in]
  kUngrouped,     // rows by kv head become q, k, v
  kSqueezed,      // [1, n] becomes [n]
  kStacked,       // of several tensors, "{e}" in the name: [experts or heads, ...]
  kByHead,        // [heads * d] becomes [heads, d]
  kFusedQkv,      // "{qkv}" in the name: three tensors one after the other
  kKeysOfHeads,   // of kv_b_proj: [heads, rank, nope]
  kValuesOfHeads  // of kv_b_proj: [heads, value, rank]
};

struct GgufTwinRule {
  std::string hub, stored;  // "{l}": layer, "{e}": expert; one without form kStacked keeps its number
  Form form = Form::kAsIs;
};

/// A metadata entry (after "ARCHITECTURE.") whose value config.json has under `hub`.
struct GgufTwinKey {
  std::string stored, hub;
  GgufType type = GgufType::kU32;
};

struct GgufTwinFamily {
  std::string name, fixture, architecture;
  std::vector<GgufTwinRule> rules;
  std::vector<GgufTwinKey> keys;
  std::vector<GgufItem> fixed = {};  // entries that config.json does not have
  JsonObject overrides = {};         // of the hub's config: what the file cannot say, or says otherwise
  JsonObject random = {};            // instead of a fixture: the config of a random checkpoint,
  uint64_t seed = 0;                 // and its seed, which decides in which form it is stored
};

const std::vector<GgufTwinFamily>& gguf_twin_families();

enum class Precision { kF32, kQ8, kQ8AsF32 };

/// Every tensor of the hub checkpoint must have a rule; throws Error naming one that has not. kQ8: matrices
/// with rows of whole blocks become Q8_0; kQ8AsF32: the same numbers in f32.
void write_gguf_twin(const std::string& path, const Checkpoint& hub, const GgufTwinFamily& family,
                     Precision precision);

}  // namespace lmdeploy::testing
