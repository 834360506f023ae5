// Sizes of weight rules.
#include "lmdeploy/models/weight_rules.h"

#include "lmdeploy/core/error.h"

namespace lmdeploy {

int64_t size_of(Dim dim, const DecoderSpec& spec) {
  switch (dim) {
    case Dim::kNone:
      break;
    case Dim::kVocab:
      return spec.vocab_size;
    case Dim::kHidden:
      return spec.hidden_size;
    case Dim::kQ:
      return spec.q_size();
    case Dim::kKv:
      return spec.kv_size();
    case Dim::kInner:
      return spec.intermediate_size;
  }
  LMD_CHECK(false, "no size for dim ", static_cast<int>(dim));
}

}  // namespace lmdeploy
