// Models that do not run here are named with what they are and what to use instead.
#include "lmdeploy/models/other_models.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/registry.h"
#include "lmdeploy/models/spec_check.h"

namespace lmdeploy {
namespace {

std::string refusal_of(const std::string& architecture, JsonObject keys = {}) {
  keys["architectures"] = JsonArray{Json(architecture)};
  const Json config = std::move(keys);
  const ConfigReader cfg(config, "dir/config.json");
  try {
    checked_spec(find_family(cfg), cfg);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    return error.what();
  }
  ADD_FAILURE() << architecture << " is supported";
  return "";
}

void expect_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "no \"" << word << "\" in: " << text;
}

TEST(OtherModels, SayWhatTheyAreAndWhatToUseInstead) {
  expect_words(refusal_of("Qwen2_5_VLForConditionalGeneration"),
               {"dir/config.json: architecture \"Qwen2_5_VLForConditionalGeneration\" is not supported: ",
                "pictures", "use Qwen2.5-7B-Instruct", "; supported: ", "Qwen2ForCausalLM"});
  const std::pair<const char*, const char*> known[] = {{"LlavaLlamaForCausalLM", "pictures"},
                                                       {"InternVLChatModel", "pictures"},
                                                       {"Gemma3ForConditionalGeneration", "pictures"},
                                                       {"MambaForCausalLM", "recurrent"},
                                                       {"RwkvForCausalLM", "recurrent"},
                                                       {"JambaForCausalLM", "recurrent"},
                                                       {"T5ForConditionalGeneration", "encoder-decoder"},
                                                       {"MarianMTModel", "encoder-decoder"},
                                                       {"BartForConditionalGeneration", "encoder-decoder"},
                                                       {"WhisperForConditionalGeneration", "sound"},
                                                       {"BertModel", "an encoder:"},
                                                       {"BertForMaskedLM", "an encoder:"},
                                                       {"XLMRobertaModel", "an encoder:"},
                                                       {"Qwen2Model", "another head"},
                                                       {"MistralModel", "another head"},
                                                       {"LlamaForSequenceClassification", "another head"},
                                                       {"LlamaForRewardModel", "another head"},
                                                       {"LLaDAModelLM", "diffusion"},
                                                       {"OPTForCausalLM", "family"},
                                                       {"gguf:mamba", "recurrent"},
                                                       {"gguf:bert", "an encoder:"},
                                                       {"gguf:clip", "mmproj"},
                                                       {"gguf:gpt-oss", "hub's form"}};
  for (const auto& [architecture, word] : known) expect_words(refusal_of(architecture), {word, "; use "});
}

TEST(OtherModels, KeysTellWhereTheNameDoesNot) {
  expect_words(refusal_of("NewThingForConditionalGeneration", {{"vision_config", JsonObject()}}),
               {"pictures", "; use "});
  expect_words(refusal_of("NewThingForCausalLM", {{"audio_config", JsonObject()}}), {"sound"});
  const std::string unknown = refusal_of("NewThingForCausalLM");
  expect_words(unknown, {"\"NewThingForCausalLM\" is not supported; supported: "});
}

// Qwen-VL and GLM-4V have the class names of text models.
TEST(OtherModels, PicturesUnderATextModelsName) {
  expect_words(refusal_of("QWenLMHeadModel", {{"visual", JsonObject{{"width", 1664}}}}),
               {"has \"visual\"", "pictures", "; use "});
  expect_words(refusal_of("ChatGLMModel", {{"vision_config", JsonObject{{"hidden_size", 1792}}}}),
               {"has \"vision_config\"", "pictures"});
}

}  // namespace
}  // namespace lmdeploy
