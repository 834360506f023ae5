// A quantised hub checkpoint as a plain one.
#pragma once

#include <memory>
#include <string_view>

#include "lmdeploy/formats/checkpoint.h"

namespace lmdeploy {

/// `base` itself when nothing in it is quantised; else a checkpoint that has `NAME.weight` [out, in] in f32,
/// exactly the product of stored integers and scales, where `base` has packed tensors. Those are computed in
/// tensor() and gone after drop(). Its config has no quantization_config. `model_format` (may be empty) must
/// be what is found. Throws Error: kInvalidArgument for another model_format, kUnsupported, kInvalidData.
std::unique_ptr<Checkpoint> dequantized(std::unique_ptr<Checkpoint> base, std::string_view model_format);

}  // namespace lmdeploy
