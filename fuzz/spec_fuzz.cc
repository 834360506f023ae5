// config.json to a spec, and the plan of loading it: one Error, or a spec whose tables can be made. A plan
// of a checkpoint without tensors is always an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "json_mutation.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/kv_groups.h"
#include "lmdeploy/models/model_plan.h"
#include "lmdeploy/models/registry.h"
#include "lmdeploy/models/rope.h"
#include "lmdeploy/models/spec_check.h"

namespace {

class ConfigOnly : public lmdeploy::Checkpoint {
 public:
  explicit ConfigOnly(const lmdeploy::Json& config) {
    path_ = config_path_ = "input";
    config_ = config;
  }
  lmdeploy::ConstTensorView tensor(size_t) const override { std::abort(); }
  void drop(size_t) const override { std::abort(); }
};

void expect(bool holds) {
  if (!holds) std::abort();
}

void check_rope(const lmdeploy::RopeSpec& rope) {
  for (const int64_t length : {int64_t{1}, int64_t{5000}, int64_t{INT32_MAX}})
    for (const double frequency : lmdeploy::make_rope_table(rope, length).inv_freq)
      expect(std::isfinite(frequency) && frequency >= 0);
}

void check_spec(const lmdeploy::DecoderSpec& spec) {
  expect(spec.layers.size() == static_cast<size_t>(spec.num_layers) &&
         spec.num_heads % spec.num_kv_heads == 0);
  expect(spec.experts.top_k <= spec.experts.num_experts && spec.max_positions > 0);
  expect(!lmdeploy::group_kv_layers(spec.layers).groups.empty());
  constexpr int64_t kLarge = 1 << 12;  // a table of that many pairs is no news
  if (spec.has_rope() && spec.rope.rotary_dim < kLarge) check_rope(spec.rope);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::JsonInputs inputs;
  const lmdeploy::Json config = inputs.take(data, size);
  try {
    const lmdeploy::ConfigReader cfg(config, "input");
    check_spec(lmdeploy::checked_spec(lmdeploy::find_family(cfg), cfg));
  } catch (const lmdeploy::Error&) {
    return 0;
  }
  try {
    lmdeploy::plan_model(ConfigOnly(config), {});
  } catch (const lmdeploy::Error&) {
    return 0;
  }
  std::abort();
}
