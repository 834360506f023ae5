// Generation ends at each id that any file calls an end (field case F16).
#include <fstream>

#include "fixture.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy::testing {
namespace {

/// What is beside the weights. The model says the alphabet, then <|im_end|> for ever.
struct Sources {
  const char* name;
  JsonObject config = {}, generation_config = {};
  const char* tokenizer_config = nullptr;  // keys in place of the default's, as JSON
  const char* special_tokens_map = nullptr;
  std::vector<int> ends;
  const char* text;  // the answer to "a" and whatever comes after it
};

constexpr const char* kAll = "bcdefghijklmnopqrstuvwxyz";
constexpr const char* kEosText = R"({"eos_token": "<|im_end|>"})";
constexpr const char* kEosObject =
    R"({"eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "lstrip": false, "special": true}})";

const Sources kSources[] = {
    {.name = "ConfigInt", .config = {{"eos_token_id", 'f'}}, .ends = {'f'}, .text = "bcde"},
    {.name = "ConfigList",
     .config = {{"eos_token_id", JsonArray{'x', 'f'}}},
     .ends = {'f', 'x'},
     .text = "bcde"},
    {.name = "ConfigDouble", .config = {{"eos_token_id", 102.0}}, .ends = {'f'}, .text = "bcde"},
    {.name = "ConfigNone", .config = {{"eos_token_id", JsonArray{-1, 'f'}}}, .ends = {'f'}, .text = "bcde"},
    {.name = "NestedInt",
     .config = {{"text_config", JsonObject{{"eos_token_id", 'f'}}}},
     .ends = {'f'},
     .text = "bcde"},
    {.name = "NestedList",
     .config = {{"text_config", JsonObject{{"eos_token_id", JsonArray{'g', 'f'}}}}},
     .ends = {'f', 'g'},
     .text = "bcde"},
    {.name = "NestedNull",
     .config = {{"eos_token_id", 'f'}, {"text_config", JsonObject{{"eos_token_id", nullptr}}}},
     .ends = {'f'},
     .text = "bcde"},
    {.name = "GenerationInt", .generation_config = {{"eos_token_id", 'f'}}, .ends = {'f'}, .text = "bcde"},
    {.name = "GenerationList",
     .generation_config = {{"eos_token_id", JsonArray{'q', 'f'}}},
     .ends = {'f', 'q'},
     .text = "bcde"},
    {.name = "GenerationOverConfig",
     .config = {{"eos_token_id", 'c'}},
     .generation_config = {{"eos_token_id", 'f'}},
     .ends = {'f'},
     .text = "bcde"},
    {.name = "GenerationWithoutIds",
     .config = {{"eos_token_id", 'f'}},
     .generation_config = {{"eos_token_id", nullptr}, {"temperature", 0.5}},
     .ends = {'f'},
     .text = "bcde"},
    {.name = "TokenizerText", .tokenizer_config = kEosText, .ends = {kImEnd}, .text = kAll},
    {.name = "TokenizerObject", .tokenizer_config = kEosObject, .ends = {kImEnd}, .text = kAll},
    {.name = "MapText", .special_tokens_map = kEosText, .ends = {kImEnd}, .text = kAll},
    {.name = "MapObject", .special_tokens_map = kEosObject, .ends = {kImEnd}, .text = kAll},
    {.name = "MapWhereTokenizerSaysNull",
     .tokenizer_config = R"({"eos_token": null})",
     .special_tokens_map = kEosText,
     .ends = {kImEnd},
     .text = kAll},
    {.name = "TokenizerAndConfig",
     .config = {{"eos_token_id", 'f'}},
     .tokenizer_config = kEosText,
     .ends = {'f', kImEnd},
     .text = "bcde"},
};

class EndIdsTest : public PipelineTest, public ::testing::WithParamInterface<Sources> {
 protected:
  void write() const {
    const Sources& sources = GetParam();
    write_chain_model(
        folder(), {.eos = false, .config = sources.config, .generation_config = sources.generation_config});
    if (sources.tokenizer_config != nullptr) {
      JsonObject config = read_json_file(folder() + "/tokenizer_config.json").as_object();
      const Json changes = parse_json(sources.tokenizer_config, "test");
      for (const auto& [key, value] : changes.as_object()) config[key] = value;
      std::ofstream(folder() + "/tokenizer_config.json") << to_json_text(config);
    }
    if (sources.special_tokens_map != nullptr)
      std::ofstream(folder() + "/special_tokens_map.json") << sources.special_tokens_map;
  }
};

TEST_P(EndIdsTest, F16_GenerationEnds) {
  write();
  Pipeline pipeline(config());
  EXPECT_EQ(pipeline.eos_ids(), GetParam().ends);
  const Response response = run_raw(pipeline, "a", new_tokens(40));
  EXPECT_EQ(response.text, GetParam().text);
  EXPECT_EQ(response.finish_reason, FinishReason::kStop);
  GenerationConfig ignoring = new_tokens(40);
  ignoring.ignore_eos = true;
  EXPECT_EQ(run_raw(pipeline, "a", ignoring).finish_reason, FinishReason::kLength);
}

INSTANTIATE_TEST_SUITE_P(Sources, EndIdsTest, ::testing::ValuesIn(kSources),
                         [](const auto& test) { return std::string(test.param.name); });

class TemplateEndIdsTest : public PipelineTest {};

// A control token becomes an end id, text is looked for in the answer.
TEST_F(TemplateEndIdsTest, F16_StopWordsOfTheTemplate) {
  write_chain_model(folder(), {.eos = false});
  PipelineConfig with_token = config();
  with_token.chat_template = ChatTemplateConfig();
  with_token.chat_template->model_name = "qwen";  // <|im_end|>
  Pipeline by_token(with_token);
  EXPECT_EQ(by_token.eos_ids(), std::vector<int>{kImEnd});
  EXPECT_EQ(by_token.infer({std::string("hi")}, {new_tokens(40)}).front().finish_reason, FinishReason::kStop);

  PipelineConfig with_words = with_token;
  with_words.chat_template->stop_words = std::vector<std::string>{"de", "<|im_end|>"};
  Pipeline by_word(with_words);
  const Response response = by_word.infer({std::string("hi")}, {new_tokens(40)}).front();
  EXPECT_EQ(response.text, "abc");
  EXPECT_EQ(response.finish_reason, FinishReason::kStop);
}

TEST_F(TemplateEndIdsTest, WrongIdsAreNamed) {
  for (const Json& wrong : {Json("f"), Json(1.5), Json(JsonArray{Json("f")}), Json(-2), Json(3000000000)}) {
    for (const bool generation : {false, true}) {
      const JsonObject keys = {{"eos_token_id", wrong}};
      write_chain_model(folder(), generation ? ChainModel{.config = {}, .generation_config = keys}
                                             : ChainModel{.config = keys, .generation_config = {}});
      try {
        Pipeline pipeline(config());
        ADD_FAILURE() << "no error: " << to_json_text(wrong);
      } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_EQ(error.code(), ErrorCode::kInvalidData) << message;
        EXPECT_NE(message.find(generation ? "generation_config.json: key \"eos_token_id\""
                                          : "/config.json: key \"eos_token_id\""),
                  std::string::npos)
            << message;
      }
    }
    std::ofstream(folder() + "/generation_config.json") << "{}";
  }
}

}  // namespace
}  // namespace lmdeploy::testing
