// A quantised hub checkpoint as a plain one.
#pragma once

#include <memory>
#include <string_view>

#include "lmdeploy/formats/checkpoint.h"

namespace lmdeploy {

/// `base` itself when nothing in it is quantised; else a checkpoint that has `NAME.weight` [out, in] where
/// `base` has packed tensors: the stored integers or codes in a kind of ours (core/dtype.h) where one fits,
/// else f32, exactly the products with their scales. They are computed in tensor() and gone after drop(). Its
/// config has no quantization_config. `model_format` (may be empty) must be what is found. Throws Error:
/// kInvalidArgument for another model_format, kUnsupported, kInvalidData.
std::unique_ptr<Checkpoint> dequantized(std::unique_ptr<Checkpoint> base, std::string_view model_format);

}  // namespace lmdeploy
