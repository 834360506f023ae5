// What the sizes and factors of a spec must keep to, whichever family read them.
#pragma once

#include "lmdeploy/models/decoder_spec.h"
#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

class ConfigReader;

/// The family's spec of a config. Throws Error: what read_spec throws, and kInvalidData naming the config key
/// of a size or factor that does not fit the others.
DecoderSpec checked_spec(const ModelFamily& family, const ConfigReader& cfg);

}  // namespace lmdeploy
