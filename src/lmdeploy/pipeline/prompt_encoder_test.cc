#include "lmdeploy/pipeline/prompt_encoder.h"

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/pipeline/scripted_tokenizer.h"

namespace lmdeploy {
namespace {

using namespace std::string_literals;

/// Writes "[role]content" for each message, with or without BOS.
class BracketTemplate : public ChatTemplate {
 public:
  BracketTemplate(std::string name, std::string bos) : name_(std::move(name)), bos_(std::move(bos)) {}
  std::string name() const override { return name_; }
  std::string render(const Json& messages, const RenderOptions&) const override {
    std::string text = bos_;
    for (const Json& message : messages.get_array())
      text += "[" + std::string(message.at("role").get_string()) + "]" +
              std::string(message.at("content").get_string());
    return text;
  }
  std::string render_prompt(std::string_view prompt, const RenderOptions& options) const override {
    return render(JsonArray{JsonObject{{"role", "user"}, {"content", prompt}}}, options);
  }
  const std::vector<std::string>& stop_words() const override { return none_; }

 private:
  std::string name_, bos_;
  std::vector<std::string> none_;
};

constexpr int kBos = 0, kUser = 1, kA = 2;

std::shared_ptr<ScriptedTokenizer> make_tokenizer(bool add_bos) {
  auto tokenizer = std::make_shared<ScriptedTokenizer>(
      std::vector<ScriptedTokenizer::Piece>{{"<s>", true}, {"[user]"}, {"a"}});
  if (add_bos) tokenizer->bos = kBos;
  return tokenizer;
}

PromptEncoder make_encoder(bool add_bos, const std::string& template_name, const std::string& template_bos) {
  return {make_tokenizer(add_bos), std::make_shared<BracketTemplate>(template_name, template_bos), 3};
}

TEST(PromptEncoder, F05_ExactlyOneBosAfterATemplate) {
  const std::vector<int> with_bos = {kBos, kUser, kA}, without_bos = {kUser, kA};
  EXPECT_EQ(make_encoder(true, "jinja", "<s>").encode("a"s, {}), with_bos);
  EXPECT_EQ(make_encoder(true, "jinja", "").encode("a"s, {}), without_bos);  // the template's word is final
  EXPECT_EQ(make_encoder(true, "llama2", "").encode("a"s, {}), with_bos);    // the catalogue leaves it out
  EXPECT_EQ(make_encoder(true, "llama2", "<s>").encode("a"s, {}), with_bos);
  EXPECT_EQ(make_encoder(false, "llama2", "").encode("a"s, {}), without_bos);
}

TEST(PromptEncoder, F05_RawPromptsFollowTheTokenizer) {
  const RunOptions raw = {.do_preprocess = false, .template_extra = {}, .tools = {}};
  EXPECT_EQ(make_encoder(true, "jinja", "<s>").encode("a"s, raw), (std::vector<int>{kBos, kA}));
  EXPECT_EQ(make_encoder(true, "jinja", "<s>").encode("<s>a"s, raw), (std::vector<int>{kBos, kA}));
  EXPECT_EQ(make_encoder(false, "jinja", "<s>").encode("a"s, raw), std::vector<int>{kA});
}

TEST(PromptEncoder, MessagesAndIds) {
  const PromptEncoder encoder = make_encoder(true, "jinja", "<s>");
  const Json messages =
      parse_json(R"([{"role":"user","content":"a"},{"role":"user","content":"a"}])", "test");
  EXPECT_EQ(encoder.encode(messages, {}), (std::vector<int>{kBos, kUser, kA, kUser, kA}));
  EXPECT_EQ(encoder.encode(std::vector<int>{2, 2}, {}), (std::vector<int>{2, 2}));
  EXPECT_EQ(encoder.render(messages, {}), "<s>[user]a[user]a");
}

TEST(PromptEncoder, PreviewIsTextAndIdsOfThePrompt) {
  const PromptEncoder encoder = make_encoder(true, "llama2", "");
  const PromptPreview of_text = encoder.preview("a"s, {});
  EXPECT_EQ(of_text.text, "[user]a");
  EXPECT_EQ(of_text.token_ids, (std::vector<int>{kBos, kUser, kA}));
  RunOptions raw;
  raw.do_preprocess = false;
  EXPECT_EQ(encoder.preview("a"s, raw).text, "a");
  EXPECT_EQ(encoder.preview(std::vector<int>{2, 2}, {}).token_ids, (std::vector<int>{2, 2}));
  expect_error(ErrorCode::kInvalidArgument, {"vocabulary"},
               [&] { encoder.preview(std::vector<int>{3}, {}); });
}

TEST(PromptEncoder, F11_ContinuesTheLastMessage) {
  const PromptEncoder encoder(make_tokenizer(false), make_catalogue_template({.model_name = "qwen2d5"}), 3);
  const Json half =
      parse_json(R"([{"role":"user","content":"a"},{"role":"assistant","content":"1, 2,"}])", "test");
  RunOptions options;
  options.continue_final_message = true;
  expect_error(ErrorCode::kInvalidArgument, {"continue_final_message", "add_generation_prompt"},
               [&] { encoder.render(half, options); });
  options.add_generation_prompt = false;
  const std::string text = encoder.render(half, options);
  EXPECT_EQ(text.substr(text.size() - 27), "<|im_start|>assistant\n1, 2,") << text;
}

TEST(PromptEncoder, BadInput_Prompts) {
  const PromptEncoder encoder = make_encoder(false, "jinja", "");
  const RunOptions raw = {.do_preprocess = false, .template_extra = {}, .tools = {}};
  expect_error(ErrorCode::kInvalidArgument, {"no token ids"}, [&] { encoder.encode(""s, raw); });
  expect_error(ErrorCode::kInvalidArgument, {"no token ids"},
               [&] { encoder.encode(std::vector<int>{}, {}); });
  expect_error(ErrorCode::kInvalidArgument, {"-1", "position 1"}, [&] {
    encoder.encode(std::vector<int>{1, -1}, {});
  });
  expect_error(ErrorCode::kInvalidArgument, {"3", "vocabulary"},
               [&] { encoder.encode(std::vector<int>{3}, {}); });
  expect_error(ErrorCode::kInvalidArgument, {"a number"}, [&] { encoder.encode(Json(1.5), {}); });
  expect_error(ErrorCode::kInvalidArgument, {"tools", "a string"}, [&] {
    RunOptions options;
    options.tools = "x";
    encoder.encode("a"s, options);
  });
  expect_error(ErrorCode::kUnsupported, {"no tokenizer"},
               [&] { PromptEncoder(nullptr, nullptr, 3).encode("a"s, {}); });
}

}  // namespace
}  // namespace lmdeploy
