// The one table of model families. A new family is a file of its own, a line in families.h and a row here.
#include "lmdeploy/models/registry.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/other_models.h"

namespace lmdeploy {
namespace {

constexpr const ModelFamily* kFamilies[] = {
    &kBaichuan,
    &kBaichuanOldSpelling,
    &kChatGlm,
    &kChatGlmGeneration,
    &kGlm,
    &kGlm4,
    &kCohere,
    &kDbrx,
    &kDeepseek,
    &kDeepseekV2,
    &kDeepseekV3,
    &kFalcon,
    &kFalconOldSpelling,
    &kGemma,
    &kGemma2,
    &kGemma3,
    &kGpt2,
    &kGptBigCode,
    &kGptNeox,
    &kGptOss,
    &kGranite,
    &kInternLm,
    &kInternLm2,
    &kInternLm2Reward,
    &kInternLm3,
    &kLlama,
    &kLlamaOldSpelling,
    &kMiniCpm,
    &kMistral,
    &kMixtral,
    &kOlmo2,
    &kOlmoe,
    &kPhi,
    &kPhi3,
    &kQwen2,
    &kQwen2Moe,
    &kQwen2Reward,
    &kQwen3,
    &kQwen3Moe,
    &kQwenV1,
    &kSmolLm3,
    &kStableLm,
    &kStableLmOldSpelling,
    &kStarcoder2,
    &kTurboMind,
    &kYi,
};

}  // namespace

const ModelFamily& find_family(const ConfigReader& cfg) {
  const std::string architecture = cfg.architecture();
  for (const ModelFamily* family : kFamilies)
    if (family->architecture == architecture) return *family;
  std::string supported;
  for (const std::string& name : supported_architectures())
    supported += cat(supported.empty() ? "" : ", ", name);
  const std::string found = architecture.empty()
                                ? "names no architecture (\"architectures\" is missing or empty)"
                                : cat("architecture ", quote(architecture), " is not supported");
  const std::string why = why_not(architecture, cfg);
  throw Error(ErrorCode::kUnsupported,
              cat(cfg.where(), ": ", found, why.empty() ? "" : ": ", why, "; supported: ", supported));
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const ModelFamily* family : kFamilies) names.emplace_back(family->architecture);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace lmdeploy
