// How this program was built.
#pragma once

#include "lmdeploy/cli/env_facts.h"

namespace lmdeploy {

BuildFacts build_facts();

}  // namespace lmdeploy
