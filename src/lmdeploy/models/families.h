// The families that registry.cc lists; each is defined in the file of its name.
#pragma once

#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

extern const ModelFamily kLlama;
extern const ModelFamily kLlamaOldSpelling;
extern const ModelFamily kYi;

}  // namespace lmdeploy
