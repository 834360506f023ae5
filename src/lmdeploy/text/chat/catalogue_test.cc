// The built-in catalogue: stored prompts of each template, tools, paths, names.
#include "lmdeploy/text/chat/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/chat/chat_template.h"
#include "lmdeploy/text/golden/test_data.h"

namespace lmdeploy {
namespace {

Json json(std::string_view text) { return parse_json(text, "test"); }

std::shared_ptr<const ChatTemplate> named(const std::string& name) {
  return make_catalogue_template({.model_name = name});
}

const Json kRounds = json(R"([{"role": "user", "content": "U1"}, {"role": "assistant", "content": "A1"},
                              {"role": "user", "content": "U2"}])");

TEST(Catalogue, PromptsAreAsStored) {
  std::ifstream file(LMDEPLOY_SOURCE_DIR "/tests/data/text/chat_template_vectors.jsonl");
  size_t num_templates = 0;
  for (std::string line; std::getline(file, line); ++num_templates) {
    const JsonObject stored = json(line).get_object();
    const std::string name(stored.at("template").get_string());
    const auto chat = named(name);
    EXPECT_EQ(chat->render_prompt("P"), std::string(stored.at("prompt").get_string())) << name;
    if (stored.at("list").is_null())
      EXPECT_NE(error_of([&] { chat->render(kRounds); }).find(name), std::string::npos);
    else
      EXPECT_EQ(chat->render(kRounds), std::string(stored.at("list").get_string())) << name;
  }
  EXPECT_GE(num_templates, 80u);
}

TEST(Catalogue, LaterTurnsLeaveOutTheBeginning) {
  const RenderOptions later{.sequence_start = false};
  EXPECT_EQ(named("internlm")->render_prompt("P", later), "\n<|User|>:P\n<|Bot|>:");
  EXPECT_EQ(named("llama2")->render_prompt("P", later), "<s>[INST] P [/INST] ");
  EXPECT_EQ(named("llama3")->render_prompt("P", later),
            "<|start_header_id|>user<|end_header_id|>\n\nP<|eot_id|><|start_header_id|>assistant<|end_header_"
            "id|>\n\n");
  EXPECT_EQ(named("qwen")->render(json(R"([{"role": "user", "content": "U"}])"), later),
            "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Catalogue, CallersSystemMessageReplacesTheInstruction) {
  EXPECT_EQ(named("qwen")->render(
                json(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])")),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(named("qwen")->render(json(R"([{"role": "developer", "content": "S"}])"),
                                  {.add_generation_prompt = false}),
            "<|im_start|>system\nS<|im_end|>\n");
}

TEST(Catalogue, EmptyListIsOnlyTheAnswersHeader) {
  EXPECT_EQ(named("qwen")->render(JsonArray()), "<|im_start|>assistant\n");
}

TEST(Catalogue, FieldsOfTheConfigReplaceTheTemplates) {
  const auto chat = make_catalogue_template(
      {.model_name = "qwen", .meta_instruction = "M", .eoh = "!", .stop_words = {{"X"}}});
  EXPECT_EQ(chat->render_prompt("P"),
            "<|im_start|>system\nM<|im_end|>\n<|im_start|>user\nP!<|im_start|>assistant\n");
  EXPECT_EQ(chat->stop_words(), std::vector<std::string>{"X"});
  EXPECT_EQ(make_catalogue_template({.model_name = "qwen", .capability = "completion"})->render_prompt("P"),
            "P");
}

TEST(Catalogue, UnknownNameIsABlankTemplateWithTheGivenFields) {
  const auto chat =
      make_catalogue_template({.model_name = "mine", .user = "<u>", .assistant = "<a>", .eoa = "</a>"});
  EXPECT_EQ(chat->name(), "mine");
  EXPECT_EQ(chat->render(kRounds), "<u>U1<a>A1</a><u>U2<a>");
}

TEST(Catalogue, StopWords) {
  EXPECT_EQ(named("llama3")->stop_words(), (std::vector<std::string>{"<|eot_id|>", "<|end_of_text|>"}));
  EXPECT_EQ(named("mistral")->stop_words(), std::vector<std::string>{});
  EXPECT_EQ(named("gemma")->stop_words(), std::vector<std::string>{"<end_of_turn>"});
}

TEST(Catalogue, F11_LastAssistantMessageIsContinued) {
  const Json half = json(R"([{"role": "user", "content": "U"}, {"role": "assistant", "content": "1, 2,"}])");
  EXPECT_EQ(named("mistral")->render(half), "[INST] U [/INST]1, 2,");
  EXPECT_TRUE(named("vicuna")->render(half).ends_with("USER: U ASSISTANT: 1, 2,"));
  // The qwen2d5 family opens a new turn unless it is told to continue.
  EXPECT_TRUE(named("qwen2d5")->render(half).ends_with("1, 2,<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_TRUE(named("qwen2d5")
                  ->render(half, {.add_generation_prompt = false, .continue_final_message = true})
                  .ends_with("<|im_start|>assistant\n1, 2,"));
  EXPECT_TRUE(named("qwen")->render(half, {.add_generation_prompt = false}).ends_with("1, 2,<|im_end|>\n"));
}

TEST(Catalogue, F07_ToolMessagesAndUnknownRoles) {
  const Json talk = json(R"([{"role": "user", "content": "U"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\":6}"}}]},
      {"role": "tool", "content": "{\"t\":21}"}])");
  for (const std::string& name : chat_template_names()) {
    if (name == "hf" || name == "llama" || name == "falcon") continue;
    if (name == "chatglm")
      EXPECT_NE(error_of([&] { named(name)->render(talk); }).find("\"tool\""), std::string::npos);
    else
      EXPECT_NE(named(name)->render(talk).find(R"({"t":21})"), std::string::npos) << name;
  }
  const std::string message =
      error_of([] { named("qwen")->render(json(R"([{"role": "robot", "content": "x"}])")); });
  EXPECT_NE(message.find("\"robot\""), std::string::npos) << message;
}

TEST(Catalogue, F08_TextPartsAreJoined) {
  const Json parts = json(
      R"([{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}])");
  EXPECT_EQ(named("gemma")->render(parts),
            "<start_of_turn>user\none\ntwo<end_of_turn>\n<start_of_turn>model\n");
}

constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "f", "description": "Does é.", "parameters": {"type": "object"}}}])";
const std::string kFunction = R"({"name": "f", "description": "Does é.", "parameters": {"type": "object"}})";

TEST(Catalogue, APromptOfTextGetsWhatMessagesGet) {
  const Json message = json(R"([{"role": "user", "content": "Q"}])");
  RenderOptions options;
  options.tools = json(kTools);
  for (const char* name : {"qwen2d5", "qwen3", "llama3_1", "internlm2"}) {
    EXPECT_EQ(named(name)->render_prompt("Q", options), named(name)->render(message, options)) << name;
    EXPECT_NE(named(name)->render_prompt("Q", options).find("Does é."), std::string::npos) << name;
  }
  const RenderOptions no_thinking = {.extra = {{"enable_thinking", false}}};
  EXPECT_EQ(named("qwen3")->render_prompt("Q", no_thinking), named("qwen3")->render(message, no_thinking));
  EXPECT_NE(named("qwen3")->render_prompt("Q", no_thinking), named("qwen3")->render_prompt("Q"));
}

TEST(Catalogue, APromptOfTextRefusesToolsWhereMessagesDo) {
  RenderOptions options;
  options.tools = json(kTools);
  for (const char* name : {"gemma", "chatglm", "base", "codellama"})
    EXPECT_NE(error_of([&] { named(name)->render_prompt("Q", options); }).find("tools"), std::string::npos)
        << name;
  for (const char* capability : {"completion", "infilling", "python"}) {
    const auto raw = make_catalogue_template({.model_name = "codellama", .capability = capability});
    EXPECT_NE(error_of([&] { raw->render_prompt("Q", options); }).find(capability), std::string::npos);
  }
}

TEST(Catalogue, ToolsOfQwen) {
  RenderOptions options;
  options.tools = json(kTools);
  const std::string prompt =
      named("qwen2d5")->render(json(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
      {"role": "assistant", "content": "Let me see.", "tool_calls": [
          {"function": {"name": "f", "arguments": "{\"x\":6}"}}, {"function": {"name": "f", "arguments": {"x": "é"}}}]},
      {"role": "tool", "content": "r1"}, {"role": "tool", "content": "r2"}])"),
                               options);
  EXPECT_EQ(prompt,
            "<|im_start|>system\nS\n\n# Tools\n\nYou may call one or more functions to assist with the user "
            "query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
            "{\"type\": \"function\", \"function\": " +
                kFunction +
                "}\n</tools>\n\n"
                "For each function call, return a json object with function name and arguments within "
                "<tool_call></tool_call> XML tags:\n<tool_call>\n"
                "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n"
                "<|im_start|>user\nU<|im_end|>\n"
                "<|im_start|>assistant\nLet me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
                "6}}\n</tool_call>\n"
                "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"é\"}}\n</tool_call><|im_end|>\n"
                "<|im_start|>user\n<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</"
                "tool_response><|im_end|>\n"
                "<|im_start|>assistant\n");
}

TEST(Catalogue, ThinkingCanBeSwitchedOff) {
  RenderOptions options;
  options.extra = {{"enable_thinking", false}};
  EXPECT_TRUE(
      named("qwen3")->render(kRounds, options).ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_TRUE(named("qwen3")->render(kRounds).ends_with("<|im_start|>assistant\n"));
}

TEST(Catalogue, ToolsOfLlama31) {
  RenderOptions options;
  options.tools = json(kTools);
  const auto chat = named("llama3_1");
  const std::string own = chat->render(json(R"([{"role": "user", "content": "U"}])"), options);
  const std::string begin =
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
      "Today Date: 26 Jul 2024\n\n# Tool Instructions\n";
  EXPECT_EQ(own.substr(0, begin.size()), begin);
  EXPECT_NE(
      own.find("functions:\n\nUse the function 'f' to: Does é.\n" + kFunction + "\n\n\nIf a you choose"),
      std::string::npos)
      << own;
  EXPECT_NE(own.find("user query\n\nYou are a helpful assistant.<|eot_id|>"), std::string::npos) << own;
  const std::string theirs =
      chat->render(json(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
      {"role": "assistant", "content": "<function=f>{}</function>"}, {"role": "ipython", "content": "21"}])"),
                   options);
  EXPECT_EQ(theirs.find("Cutting Knowledge"), std::string::npos);
  EXPECT_NE(theirs.find("user query\n\nS<|eot_id|>"), std::string::npos) << theirs;
  EXPECT_TRUE(
      theirs.ends_with("<function=f>{}</function><|eom_id|><|start_header_id|>ipython<|end_header_id|>\n\n21"
                       "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"))
      << theirs;
}

TEST(Catalogue, ToolsOfInternlm2) {
  RenderOptions options;
  options.tools = json(kTools);
  const std::string prompt =
      named("internlm2")
          ->render(json(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
      {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\":6}"}}]},
      {"role": "environment", "name": "plugin", "content": "21"}, {"role": "user", "name": "other", "content": "V"}])"),
                   options);
  EXPECT_EQ(prompt,
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>system name=<|plugin|>\n[" + kFunction +
                "]<|im_end|>\n"
                "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n<|action_start|><|plugin|>\n"
                "{\"name\": \"f\", \"parameters\": {\"x\": 6}}<|action_end|><|im_end|>\n"
                "<|im_start|>environment name=<|plugin|>\n21<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
                "<|im_start|>assistant\n");
}

TEST(Catalogue, TemplatesWithoutToolsRefuseThem) {
  RenderOptions options;
  options.tools = json(kTools);
  EXPECT_NE(error_of([&] { named("vicuna")->render(kRounds, options); }).find("vicuna"), std::string::npos);
  options.tools = JsonArray();
  EXPECT_NO_THROW(named("vicuna")->render(kRounds, options));
}

TEST(Catalogue, CodellamaByCapability) {
  const auto with = [](const char* capability) {
    return make_catalogue_template({.model_name = "codellama", .capability = capability});
  };
  EXPECT_EQ(with("infilling")->render_prompt("a<FILL>b"), "<PRE> a <SUF>b <MID>");
  RenderOptions options;
  options.extra = {{"suffix_first", true}};
  EXPECT_EQ(with("infilling")->render_prompt("a<FILL>b", options), "<PRE> <SUF>b <MID> a");
  EXPECT_EQ(with("infilling")->stop_words(), std::vector<std::string>{"<EOT>"});
  EXPECT_EQ(with("completion")->render_prompt("a<FILL>b"), "a<FILL>b");
  EXPECT_EQ(with("python")->render_prompt("x = "), "x = ");
  EXPECT_NE(error_of([&] { with("infilling")->render_prompt("a"); }).find("<FILL>"), std::string::npos);
  EXPECT_NE(error_of([&] { with("infilling")->render_prompt("<FILL><FILL>"); }).find("<FILL>"),
            std::string::npos);
  EXPECT_NE(error_of([&] { with("dancing"); }).find("dancing"), std::string::npos);
}

TEST(Catalogue, FixedMarkersCannotBeChanged) {
  EXPECT_NE(error_of([] { make_catalogue_template({.model_name = "chatglm", .user = "x"}); }).find("chatglm"),
            std::string::npos);
}

TEST(Catalogue, EncodersAreRefusedByName) {
  EXPECT_NE(error_of([] { named("deepseek-v4"); }, ErrorCode::kUnsupported).find("deepseek-v4"),
            std::string::npos);
}

TEST(Catalogue, PathsGiveNames) {
  const std::pair<const char*, const char*> kPaths[] = {
      {"lmsys/vicuna-7b-v1.5", "vicuna"},
      {"liuhaotian/llava-v1.5-7b", "llava-v1"},
      {"liuhaotian/llava-v1.6-vicuna-7b", "llava-v1"},
      {"liuhaotian/llava-v1.6-mistral-7b-instruct", "mistral"},
      {"liuhaotian/llava-v1.6-34b", "llava-chatml"},
      {"internlm/internlm-chat-7b", "internlm"},
      {"internlm/internlm2-chat-7b", "internlm2"},
      {"internlm/internlm2_5-7b-chat", "internlm2"},
      {"internlm/internlm3-8b-instruct", "internlm3"},
      {"OpenGVLab/InternVL-Chat-V1-5", "internvl-internlm2"},
      {"OpenGVLab/Mini-InternVL-Chat-4B-V1-5", "internvl-phi3"},
      {"OpenGVLab/InternVL2-8B", "internvl2-internlm2"},
      {"OpenGVLab/InternVL2-4B", "internvl2-phi3"},
      {"OpenGVLab/InternVL2_5-8B", "internvl2_5"},
      {"internlm/internlm-xcomposer2-4khd-7b", "internlm-xcomposer2-4khd"},
      {"baichuan-inc/Baichuan2-7B-Chat", "baichuan2"},
      {"meta-llama/Llama-2-7b-chat-hf", "llama2"},
      {"meta-llama/Meta-Llama-3-8B-Instruct", "llama3"},
      {"meta-llama/Meta-Llama-3.1-8B-Instruct", "llama3_1"},
      {"meta-llama/Llama-3.2-1B-Instruct", "llama3_2"},
      {"meta-llama/Llama-4-Scout-17B", "llama4"},
      {"Qwen/Qwen-7B-Chat", "qwen"},
      {"Qwen/Qwen1.5-7B-Chat", "qwen"},
      {"Qwen/Qwen2.5-7B-Instruct", "qwen2d5"},
      {"Qwen/Qwen2.5-VL-7B-Instruct", "qwen2d5-vl"},
      {"Qwen/QwQ-32B-Preview", "qwq_preview"},
      {"Qwen/QwQ-32B", "qwq"},
      {"Qwen/Qwen3-8B", "qwen3"},
      {"codellama/CodeLlama-7b-Instruct-hf", "codellama"},
      {"tiiuae/falcon-7b-instruct", "falcon"},
      {"THUDM/chatglm2-6b", "chatglm"},
      {"THUDM/chatglm3-6b", "chatglm3"},
      {"THUDM/glm-4-9b-chat", "glm4"},
      {"01-ai/Yi-34B-Chat", "yi"},
      {"01-ai/Yi-VL-6B", "yi-vl"},
      {"mistralai/Mistral-7B-Instruct-v0.2", "mistral"},
      {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral"},
      {"Mixtral-8x7B-Instruct-v0.1", "mixtral"},
      {"google/gemma-7b-it", "gemma"},
      {"deepseek-ai/deepseek-llm-7b-chat", "deepseek"},
      {"deepseek-ai/deepseek-vl-7b-chat", "deepseek-vl"},
      {"deepseek-ai/deepseek-vl2-tiny", "deepseek-vl2"},
      {"deepseek-ai/deepseek-coder-6.7b-instruct", "deepseek-coder"},
      {"deepseek-ai/DeepSeek-V3", "deepseek-v3"},
      {"deepseek-ai/DeepSeek-R1", "deepseek-r1"},
      {"microsoft/Phi-3-mini-4k-instruct", "phi-3"},
      {"microsoft/Phi-4-mini-instruct", "phi-4"},
      {"allenai/Molmo-7B-D", "molmo"},
  };
  for (const auto& [path, name] : kPaths) {
    const std::string_view* found = match_model_path(path);
    EXPECT_EQ(found != nullptr ? *found : "none", name) << path;
  }
  EXPECT_EQ(match_model_path("HuggingFaceTB/SmolLM2-135M"), nullptr);
}

// A part of a path that says nothing about the model must not choose its template.
TEST(Catalogue, FoldersAboveTheModelDoNotDecide) {
  const std::pair<const char*, const char*> kPaths[] = {
      {"/data/yifan/models/SmolLM2-135M", "none"},
      {"/data/yield/hyip/m", "none"},
      {"01-ai/Yi-1.5-9B-Chat", "yi"},
      {"/models/01-ai/yi/", "yi"},
      {"/data/qwen-vs-llama/vicuna-7b", "vicuna"},
      {"/falcon/disk1/gemma-2b-it", "gemma"},
      {"C:\\models\\Qwen3-8B", "qwen3"},
      {"/cache/models--Qwen--Qwen2.5-7B-Instruct/snapshots/0a1b2c", "qwen2d5"},
      {"Qwen/qwen2_5-7b-instruct", "qwen2d5"},
      {"Qwen/qwen2_5-vl-7b", "qwen2d5-vl"},
      {"", "none"},
      {"///", "none"},
  };
  for (const auto& [path, name] : kPaths) {
    const std::string_view* found = match_model_path(path);
    EXPECT_EQ(found != nullptr ? *found : "none", name) << path;
  }
}

TEST(Catalogue, NamesAreSortedWithoutDeprecatedOnes) {
  const std::vector<std::string> names = chat_template_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  const auto listed = [&](const char* name) { return std::binary_search(names.begin(), names.end(), name); };
  for (const char* name : {"base", "hf", "wizardlm", "internlm2", "llama3_2", "internvl-zh-hermes2", "qwen3"})
    EXPECT_TRUE(listed(name)) << name;
  for (const char* name : {"internlm2-chat-7b", "qwen-7b", "internlm-20b", "llama-2", "baichuan-base"}) {
    EXPECT_FALSE(listed(name)) << name;
    EXPECT_TRUE(is_chat_template_name(name)) << name;
  }
  EXPECT_FALSE(is_chat_template_name("no-such-template"));
  for (const std::string& name : names) EXPECT_TRUE(is_chat_template_name(name)) << name;
}

}  // namespace
}  // namespace lmdeploy
