// Names: model classes of transformers 4.57 and of code published beside weights; "gguf:" and llama.cpp's
// names.
#include "lmdeploy/models/other_models.h"

#include <algorithm>
#include <iterator>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

enum class Why {
  kPictures,
  kSound,
  kEncoderDecoder,
  kEncoder,
  kOtherHead,
  kRecurrent,
  kDiffusion,
  kNotWritten
};

struct WhyText {
  std::string_view reason, instead;
};

// In the order of Why.
constexpr WhyText kTexts[] = {
    {"it reads pictures besides text, which is not supported", "the text model of its series"},
    {"it reads or makes sound, which is not supported", "the text model of its series"},
    {"it is an encoder-decoder, and only decoders are supported",
     "a decoder (...ForCausalLM) that is tuned for the task"},
    {"it is an encoder: it makes vectors, not text", "a library for embeddings"},
    {"it has another head than one for the next token (embedding, reward, classification): it makes numbers, "
     "not text",
     "the ...ForCausalLM that it was made from"},
    {"it has recurrent layers (state space, linear attention), whose state is not keys and values of tokens",
     "a model with attention in every layer"},
    {"it makes text by diffusion, not token by token", "a model of the same size that is autoregressive"},
    {"no one has written its family yet (docs/add_a_model.md)", "one of those that are"},
};
static_assert(std::size(kTexts) == static_cast<size_t>(Why::kNotWritten) + 1);

struct OtherModel {
  std::string_view name;
  Why why;
  std::string_view instead = {};  // "": what kTexts says
};

constexpr OtherModel kOthers[] = {
    // Pictures.
    {"Qwen2VLForConditionalGeneration", Why::kPictures, "Qwen2-7B-Instruct or Qwen2.5-7B-Instruct"},
    {"Qwen2_5_VLForConditionalGeneration", Why::kPictures, "Qwen2.5-7B-Instruct"},
    {"Qwen3VLForConditionalGeneration", Why::kPictures, "Qwen3-8B"},
    {"Qwen3VLMoeForConditionalGeneration", Why::kPictures, "Qwen3-30B-A3B"},
    {"LlavaForConditionalGeneration", Why::kPictures},
    {"LlavaNextForConditionalGeneration", Why::kPictures},
    {"LlavaOnevisionForConditionalGeneration", Why::kPictures, "Qwen2-7B-Instruct"},
    {"LlavaLlamaForCausalLM", Why::kPictures, "vicuna-7b-v1.5"},
    {"LlavaMistralForCausalLM", Why::kPictures, "Mistral-7B-Instruct-v0.2"},
    {"LlavaQwenForCausalLM", Why::kPictures, "Qwen2-7B-Instruct"},
    {"MGMLlamaForCausalLM", Why::kPictures, "vicuna-7b-v1.5"},
    {"MiniGeminiLlamaForCausalLM", Why::kPictures, "vicuna-7b-v1.5"},
    {"InternVLChatModel", Why::kPictures, "internlm2_5-7b-chat or Qwen2.5-7B-Instruct"},
    {"InternVLForConditionalGeneration", Why::kPictures, "Qwen2.5-7B-Instruct"},
    {"InternLMXComposerForCausalLM", Why::kPictures, "internlm-chat-7b"},
    {"InternLMXComposer2ForCausalLM", Why::kPictures, "internlm2-chat-7b"},
    {"InternS1ForConditionalGeneration", Why::kPictures},
    {"MultiModalityCausalLM", Why::kPictures, "deepseek-llm-7b-chat"},
    {"DeepseekVLV2ForCausalLM", Why::kPictures, "DeepSeek-V2-Lite-Chat"},
    {"MllamaForConditionalGeneration", Why::kPictures, "Llama-3.1-8B-Instruct"},
    {"Llama4ForConditionalGeneration", Why::kPictures, "Llama-3.1-8B-Instruct"},
    {"Gemma3ForConditionalGeneration", Why::kPictures, "gemma-3-1b-it or gemma-2-9b-it"},
    {"Gemma3nForConditionalGeneration", Why::kPictures, "gemma-3-1b-it"},
    {"PaliGemmaForConditionalGeneration", Why::kPictures, "gemma-2-9b-it"},
    {"Mistral3ForConditionalGeneration", Why::kPictures, "Mistral-Small-24B-Instruct-2501"},
    {"PixtralForConditionalGeneration", Why::kPictures, "Mistral-Nemo-Instruct-2407"},
    {"Phi3VForCausalLM", Why::kPictures, "Phi-3.5-mini-instruct"},
    {"Phi4MMForCausalLM", Why::kPictures, "Phi-4-mini-instruct"},
    {"Phi4MultimodalForCausalLM", Why::kPictures, "Phi-4-mini-instruct"},
    {"MiniCPMV", Why::kPictures, "Qwen2-7B-Instruct"},
    {"MiniCPMO", Why::kPictures, "Qwen2.5-7B-Instruct"},
    {"CogVLMForCausalLM", Why::kPictures, "vicuna-7b-v1.5"},
    {"Glm4vForConditionalGeneration", Why::kPictures, "GLM-4-9B-0414"},
    {"Glm4vMoeForConditionalGeneration", Why::kPictures},
    {"KimiVLForConditionalGeneration", Why::kPictures},
    {"MolmoForCausalLM", Why::kPictures},
    {"FuyuForCausalLM", Why::kPictures},
    {"gguf:clip", Why::kPictures, "the model's own .gguf file: this one is its mmproj"},
    {"gguf:qwen2vl", Why::kPictures, "Qwen2.5-7B-Instruct"},
    {"gguf:qwen3vl", Why::kPictures, "Qwen3-8B"},
    {"gguf:qwen3vlmoe", Why::kPictures, "Qwen3-30B-A3B"},
    // Sound.
    {"WhisperForConditionalGeneration", Why::kSound, "a library for speech recognition"},
    {"Qwen2AudioForConditionalGeneration", Why::kSound, "Qwen2-7B-Instruct"},
    {"Qwen2_5OmniModel", Why::kSound, "Qwen2.5-7B-Instruct"},
    {"Qwen2_5OmniForConditionalGeneration", Why::kSound, "Qwen2.5-7B-Instruct"},
    {"Qwen3OmniMoeForConditionalGeneration", Why::kSound, "Qwen3-30B-A3B"},
    {"UltravoxModel", Why::kSound},
    {"VoxtralForConditionalGeneration", Why::kSound},
    {"gguf:wavtokenizer-dec", Why::kSound},
    // Encoder-decoders; most others end in ForConditionalGeneration.
    {"MarianMTModel", Why::kEncoderDecoder},
    {"T5EncoderModel", Why::kEncoder},
    {"gguf:t5", Why::kEncoderDecoder},
    {"gguf:t5encoder", Why::kEncoder},
    // Encoders; those of the hub are known by the ends of their names.
    {"gguf:bert", Why::kEncoder},
    {"gguf:modern-bert", Why::kEncoder},
    {"gguf:nomic-bert", Why::kEncoder},
    {"gguf:nomic-bert-moe", Why::kEncoder},
    {"gguf:jina-bert-v2", Why::kEncoder},
    {"gguf:gemma-embedding", Why::kEncoder},
    // Recurrent layers.
    {"MambaForCausalLM", Why::kRecurrent},
    {"Mamba2ForCausalLM", Why::kRecurrent},
    {"MambaLMHeadModel", Why::kRecurrent},
    {"FalconMambaForCausalLM", Why::kRecurrent, "Falcon (FalconForCausalLM)"},
    {"FalconH1ForCausalLM", Why::kRecurrent, "Falcon (FalconForCausalLM)"},
    {"JambaForCausalLM", Why::kRecurrent},
    {"BambaForCausalLM", Why::kRecurrent},
    {"ZambaForCausalLM", Why::kRecurrent},
    {"Zamba2ForCausalLM", Why::kRecurrent},
    {"NemotronHForCausalLM", Why::kRecurrent},
    {"GraniteMoeHybridForCausalLM", Why::kRecurrent, "Granite 3 (GraniteForCausalLM)"},
    {"RecurrentGemmaForCausalLM", Why::kRecurrent, "gemma-2-2b-it"},
    {"Qwen3NextForCausalLM", Why::kRecurrent, "Qwen3-30B-A3B"},
    {"MiniMaxText01ForCausalLM", Why::kRecurrent},
    {"MiniMaxM1ForCausalLM", Why::kRecurrent},
    {"Lfm2ForCausalLM", Why::kRecurrent},
    {"Plamo2ForCausalLM", Why::kRecurrent},
    {"RwkvForCausalLM", Why::kRecurrent},
    {"Rwkv5ForCausalLM", Why::kRecurrent},
    {"Rwkv6ForCausalLM", Why::kRecurrent},
    {"RWKV7ForCausalLM", Why::kRecurrent},
    {"gguf:mamba", Why::kRecurrent},
    {"gguf:mamba2", Why::kRecurrent},
    {"gguf:rwkv6", Why::kRecurrent},
    {"gguf:rwkv6qwen2", Why::kRecurrent},
    {"gguf:rwkv7", Why::kRecurrent},
    {"gguf:arwkv7", Why::kRecurrent},
    {"gguf:jamba", Why::kRecurrent},
    {"gguf:falcon-h1", Why::kRecurrent},
    {"gguf:nemotron_h", Why::kRecurrent},
    {"gguf:granitehybrid", Why::kRecurrent},
    {"gguf:qwen3next", Why::kRecurrent},
    {"gguf:lfm2", Why::kRecurrent},
    {"gguf:plamo2", Why::kRecurrent},
    // Diffusion.
    {"LLaDAModelLM", Why::kDiffusion},
    {"LLaDAMoEModelLM", Why::kDiffusion},
    {"DreamModel", Why::kDiffusion},
    {"SDARForCausalLM", Why::kDiffusion, "Qwen3-8B"},
    {"gguf:llada", Why::kDiffusion},
    {"gguf:dream", Why::kDiffusion},
    // Decoders that nobody has written down here.
    {"BloomForCausalLM", Why::kNotWritten},
    {"OPTForCausalLM", Why::kNotWritten},
    {"GPTJForCausalLM", Why::kNotWritten, "Pythia (GPTNeoXForCausalLM)"},
    {"GPTNeoForCausalLM", Why::kNotWritten, "Pythia (GPTNeoXForCausalLM)"},
    {"CodeGenForCausalLM", Why::kNotWritten, "StarCoder2"},
    {"MPTForCausalLM", Why::kNotWritten},
    {"OlmoForCausalLM", Why::kNotWritten, "OLMo 2 (Olmo2ForCausalLM)"},
    {"Olmo3ForCausalLM", Why::kNotWritten, "OLMo 2 (Olmo2ForCausalLM)"},
    {"Cohere2ForCausalLM", Why::kNotWritten, "Command R (CohereForCausalLM)"},
    {"PhiMoEForCausalLM", Why::kNotWritten, "Phi-3.5-mini-instruct"},
    {"Phi3SmallForCausalLM", Why::kNotWritten, "Phi-3-mini or Phi-3-medium"},
    {"GraniteMoeForCausalLM", Why::kNotWritten, "Granite 3 dense (GraniteForCausalLM)"},
    {"Llama4ForCausalLM", Why::kNotWritten, "Llama-3.1-8B-Instruct"},
    {"Gemma3nForCausalLM", Why::kNotWritten, "gemma-3-1b-it"},
    {"MiniCPM3ForCausalLM", Why::kNotWritten, "MiniCPM-2B or MiniCPM4"},
    {"Glm4MoeForCausalLM", Why::kNotWritten, "GLM-4-9B-0414"},
    {"DeepseekV32ForCausalLM", Why::kNotWritten, "DeepSeek-V3"},
    {"NemotronForCausalLM", Why::kNotWritten, "Llama-3.1-Nemotron (LlamaForCausalLM)"},
    {"gguf:gpt-oss", Why::kNotWritten, "its checkpoint in the hub's form (GptOssForCausalLM)"},
    {"gguf:glm4", Why::kNotWritten, "its checkpoint in the hub's form (Glm4ForCausalLM)"},
    {"gguf:chatglm", Why::kNotWritten, "its checkpoint in the hub's form (ChatGLMModel)"},
    {"gguf:dbrx", Why::kNotWritten, "its checkpoint in the hub's form (DbrxForCausalLM)"},
    {"gguf:baichuan", Why::kNotWritten, "its checkpoint in the hub's form (BaichuanForCausalLM)"},
    {"gguf:qwen", Why::kNotWritten, "its checkpoint in the hub's form (QWenLMHeadModel)"},
    {"gguf:internlm2", Why::kNotWritten, "its checkpoint in the hub's form (InternLM2ForCausalLM)"},
    {"gguf:starcoder", Why::kNotWritten, "its checkpoint in the hub's form (GPTBigCodeForCausalLM)"},
    {"gguf:minicpm", Why::kNotWritten, "its checkpoint in the hub's form (MiniCPMForCausalLM)"},
    {"gguf:olmoe", Why::kNotWritten, "its checkpoint in the hub's form (OlmoeForCausalLM)"},
    {"gguf:smollm3", Why::kNotWritten, "its checkpoint in the hub's form (SmolLM3ForCausalLM)"},
    {"gguf:internlm3", Why::kNotWritten, "its checkpoint in the hub's form (InternLM3ForCausalLM)"},
};

// What the ends of class names mean; the first that fits counts.
constexpr OtherModel kEnds[] = {
    {"ForSequenceClassification", Why::kOtherHead},
    {"ForTokenClassification", Why::kOtherHead},
    {"ForQuestionAnswering", Why::kOtherHead},
    {"RewardModel", Why::kOtherHead},
    {"ForMaskedLM", Why::kEncoder},
    {"ForPreTraining", Why::kEncoder},
    {"BertModel", Why::kEncoder},
    {"BertaModel", Why::kEncoder},
    {"bertaModel", Why::kEncoder},
    {"MPNetModel", Why::kEncoder},
    {"ElectraModel", Why::kEncoder},
    {"ForConditionalGeneration", Why::kEncoderDecoder},
    {"Model", Why::kOtherHead},
};

// Keys that say it whatever the class is called.
constexpr OtherModel kKeys[] = {
    {"vision_config", Why::kPictures}, {"visual", Why::kPictures},    {"mm_vision_tower", Why::kPictures},
    {"vision_tower", Why::kPictures},  {"audio_config", Why::kSound},
};

std::string text_of(const OtherModel& model) {
  const WhyText& text = kTexts[static_cast<size_t>(model.why)];
  return cat(text.reason, "; use ", model.instead.empty() ? text.instead : model.instead);
}

}  // namespace

std::string why_not(std::string_view architecture, const ConfigReader& cfg) {
  const auto named = std::ranges::find(kOthers, architecture, &OtherModel::name);
  if (named != std::end(kOthers)) return text_of(*named);
  const auto key = std::ranges::find_if(kKeys, [&](const OtherModel& k) { return cfg.has(k.name); });
  if (key != std::end(kKeys)) return text_of(*key);
  const auto ending =
      std::ranges::find_if(kEnds, [&](const OtherModel& end) { return architecture.ends_with(end.name); });
  return ending == std::end(kEnds) ? "" : text_of(*ending);
}

void refuse_pictures(const ConfigReader& cfg, std::string_view key) {
  if (cfg.has(key))
    throw Error(ErrorCode::kUnsupported, cat(cfg.where(), ": has ", quote(key), ": ",
                                             kTexts[static_cast<size_t>(Why::kPictures)].reason, "; use ",
                                             kTexts[static_cast<size_t>(Why::kPictures)].instead));
}

}  // namespace lmdeploy
