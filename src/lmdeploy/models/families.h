// The families that registry.cc lists; each is defined in the file of its name.
#pragma once

#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

extern const ModelFamily kBaichuan;
extern const ModelFamily kBaichuanOldSpelling;
extern const ModelFamily kChatGlm;
extern const ModelFamily kChatGlmGeneration;
extern const ModelFamily kGlm;
extern const ModelFamily kGlm4;
extern const ModelFamily kCohere;
extern const ModelFamily kDbrx;
extern const ModelFamily kDeepseek;
extern const ModelFamily kDeepseekV2;
extern const ModelFamily kDeepseekV3;
extern const ModelFamily kFalcon;
extern const ModelFamily kFalconOldSpelling;
extern const ModelFamily kGemma;
extern const ModelFamily kGemma2;
extern const ModelFamily kGemma3;
extern const ModelFamily kGpt2;
extern const ModelFamily kGptBigCode;
extern const ModelFamily kGptNeox;
extern const ModelFamily kGptOss;
extern const ModelFamily kGranite;
extern const ModelFamily kInternLm;
extern const ModelFamily kInternLm2;
extern const ModelFamily kInternLm2Reward;
extern const ModelFamily kInternLm3;
extern const ModelFamily kLlama;
extern const ModelFamily kLlamaOldSpelling;
extern const ModelFamily kMiniCpm;
extern const ModelFamily kMistral;
extern const ModelFamily kMixtral;
extern const ModelFamily kOlmo2;
extern const ModelFamily kOlmoe;
extern const ModelFamily kPhi;
extern const ModelFamily kPhi3;
extern const ModelFamily kQwen2;
extern const ModelFamily kQwen2Moe;
extern const ModelFamily kQwen2Reward;
extern const ModelFamily kQwen3;
extern const ModelFamily kQwen3Moe;
extern const ModelFamily kQwenV1;
extern const ModelFamily kSmolLm3;
extern const ModelFamily kStableLm;
extern const ModelFamily kStableLmOldSpelling;
extern const ModelFamily kStarcoder2;
extern const ModelFamily kTurboMind;
extern const ModelFamily kYi;

}  // namespace lmdeploy
