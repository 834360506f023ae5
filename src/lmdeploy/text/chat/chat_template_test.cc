// Jinja templates as ChatTemplates, and the choice between templates.
#include "lmdeploy/text/chat/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/chat/chat_template_jinja.h"
#include "lmdeploy/text/golden/test_data.h"

namespace lmdeploy {
namespace {

Json json(std::string_view text) { return parse_json(text, "test"); }

std::shared_ptr<const ChatTemplate> jinja_template(const std::string& source) {
  return make_jinja_template(source, "<s>", "</s>");
}

// A template of a real model from tests/data/text.
std::shared_ptr<const ChatTemplate> model_template(const std::string& name) {
  const Json file =
      read_json_file(cat(LMDEPLOY_SOURCE_DIR "/tests/data/text/chat_templates/", name, ".json"));
  const auto text = [&](const char* key) { return std::string(file.at(key).get_string()); };
  return make_jinja_template(text("template"), text("bos_token"), text("eos_token"));
}

size_t count(std::string_view text, std::string_view word) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; at += word.size()) ++found;
  return found;
}

const std::string kChatml =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

constexpr std::string_view kToolTalk = R"([
    {"role": "system", "content": "S"}, {"role": "user", "content": "How warm?"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "call00001", "type": "function",
        "function": {"name": "f", "arguments": "{\"x\":6,\"y\":\"é\"}"}}]},
    {"role": "tool", "tool_call_id": "call00001", "content": "{\"t\":21}"}])";

TEST(ChatTemplate, F05_BosOnceAtTheBeginning) {
  const std::string prompt = model_template("llama3")->render_prompt("Hello");
  EXPECT_EQ(prompt,
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(jinja_template("{{ bos_token }}{{ messages[0].content }}")->render_prompt("Hello"), "<s>Hello");
}

TEST(ChatTemplate, SaysOnceWhatATemplateDoesNotUse) {
  RenderOptions options;
  options.tools = json(R"([{"type": "function", "function": {"name": "f"}}])");
  options.extra = {{"enable_thinking", false}, {"used", 1}};
  const auto chat = jinja_template("{{ messages[0].content }}{{ used }}");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(chat->render(json(R"([{"role": "user", "content": "Q"}])"), options), "Q1");
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* name : {"\"tools\"", "\"enable_thinking\""}) {
    EXPECT_NE(log.find(name), std::string::npos) << log;
    EXPECT_EQ(log.find(name), log.rfind(name)) << log;
  }
  EXPECT_EQ(log.find("\"used\""), std::string::npos);
}

TEST(ChatTemplate, F07_ToolMessagesAreRendered) {
  for (const char* name :
       {"smollm2", "chatml", "qwen2.5", "qwen3", "smollm3", "mistral_nemo", "deepseek_r1"}) {
    const std::string prompt = model_template(name)->render(json(kToolTalk));
    EXPECT_EQ(count(prompt, "21"), 1u) << name << ": " << prompt;
  }
}

TEST(ChatTemplate, F07_UnknownRoleIsNamed) {
  const Json messages = json(R"([{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}])");
  const std::string message = error_of([&] { jinja_template(kChatml)->render(messages); });
  EXPECT_NE(message.find("messages[1]"), std::string::npos) << message;
  EXPECT_NE(message.find("\"robot\""), std::string::npos) << message;
  // A role that the template's source spells is its own.
  const auto own =
      jinja_template("{% for m in messages %}{{ 'R' if m.role == 'robot' else 'U' }}{% endfor %}");
  EXPECT_EQ(own->render(messages), "UR");
}

TEST(ChatTemplate, F07_RoleWithoutAPlaceIsAnError) {
  const auto silent = jinja_template(
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}");
  const std::string message = error_of([&] { silent->render(json(kToolTalk)); });
  EXPECT_NE(message.find("\"tool\""), std::string::npos) << message;
}

TEST(ChatTemplate, DeveloperIsSystemWhereTheTemplateDoesNotKnowIt) {
  const auto strict = jinja_template(
      "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('bad "
      "role') }}"
      "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}");
  const Json messages = json(R"([{"role": "developer", "content": "D"}, {"role": "user", "content": "U"}])");
  EXPECT_EQ(strict->render(messages), "[system]D[user]U");
  EXPECT_EQ(
      jinja_template("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")->render(messages),
      "[developer]D[user]U");
}

TEST(ChatTemplate, F08_TextPartsEqualTheText) {
  const auto both = [](std::string_view role, std::string_view content) {
    return json(
        cat(R"([{"role": ")", role, R"(", "content": )", content, R"(}, {"role": "user", "content": "u"}])"));
  };
  for (const char* name : {"smollm2", "chatml", "qwen2.5", "smollm3", "llama3", "mistral_nemo"})
    for (const char* role : {"system", "user"}) {
      if (std::string_view(name) == "mistral_nemo" && role == std::string_view("user"))
        continue;  // wants turns
      const auto chat = model_template(name);
      const std::string text = chat->render(both(role, R"("one")"));
      EXPECT_EQ(chat->render(both(role, R"([{"type": "text", "text": "one"}])")), text) << name;
      const std::string two =
          chat->render(both(role, R"([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])"));
      EXPECT_EQ(two, chat->render(both(role, R"("one\ntwo")"))) << name;
    }
}

TEST(ChatTemplate, F08_TemplatesThatWantPartsGetThem) {
  const auto parts_only = jinja_template(
      "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else "
      "%}<image>{% endif %}"
      "{% endfor %};{% endfor %}");
  EXPECT_EQ(parts_only->render(json(R"([{"role": "user", "content": "a"}])")), "a;");
  EXPECT_EQ(parts_only->render(
                json(R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a"}]}])")),
            "<image>a;");
}

TEST(ChatTemplate, F08_OtherPartsAreRefusedByTextTemplates) {
  const Json messages =
      json(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}])");
  const std::string message = error_of([&] { jinja_template(kChatml)->render(messages); });
  EXPECT_NE(message.find("messages[0].content[1]"), std::string::npos) << message;
  EXPECT_NE(message.find("image_url"), std::string::npos) << message;
}

// Prints arguments in the four ways that templates have.
const std::string kCallLoop =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% set a = c.function.arguments %}";
const std::string kCallEnd = "{% endfor %}{{ m.content if not m.tool_calls }}{% endfor %}";

TEST(ChatTemplate, F09_ArgumentsInTheFormTheTemplatePrints) {
  const std::string as_json = R"({"x": 6, "y": "é"})", as_sent = R"({"x":6,"y":"é"})";
  const std::pair<std::string, std::string> kWays[] = {
      {"{{ a|tojson }}", as_json},  // a mapping
      {"{% for k, v in a.items() %}{{ k }}={{ v }};{% endfor %}", "x=6;y=é;"},
      {"{{ 'A' + a }}", "A" + as_sent},                   // text
      {"{{ a if a is string else a|tojson }}", as_json},  // either
  };
  for (const auto& [way, want] : kWays) {
    const std::string prompt = jinja_template(kCallLoop + way + kCallEnd)->render(json(kToolTalk));
    EXPECT_EQ(prompt, "SHow warm?" + want + R"({"t":21})") << way;
  }
  // The wire may bring a mapping too; templates that join text get it as JSON.
  Json talk = json(kToolTalk);
  talk.get_array()[2].at("tool_calls").get_array()[0].at("function").get_object()["arguments"] =
      json(R"({"x":6})");
  EXPECT_EQ(jinja_template(kCallLoop + "{{ 'A' + a }}" + kCallEnd)->render(talk),
            R"(SHow warm?A{"x": 6}{"t":21})");
}

TEST(ChatTemplate, F09_NoContentBesideToolCallsIsOneThing) {
  for (const char* name : {"qwen2.5", "qwen3", "mistral_nemo", "deepseek_r1"}) {
    Json with_null = json(kToolTalk), with_empty = with_null, without = with_null;
    with_empty.get_array()[2].get_object()["content"] = "";
    without.get_array()[2].get_object().erase("content");
    const auto chat = model_template(name);
    const std::string prompt = chat->render(with_null);
    EXPECT_EQ(chat->render(with_empty), prompt) << name;
    EXPECT_EQ(chat->render(without), prompt) << name;
    EXPECT_EQ(count(prompt, "\"y\""), 1u) << name << ": " << prompt;
  }
}

TEST(ChatTemplate, F09_ArgumentsThatAreNoObjectAreNamed) {
  Json talk = json(kToolTalk);
  Json& arguments =
      talk.get_array()[2].at("tool_calls").get_array()[0].at("function").get_object()["arguments"];
  const auto chat = jinja_template(kCallLoop + "{{ a|tojson }}" + kCallEnd);
  arguments = "{\"x\":";
  EXPECT_NE(error_of([&] { chat->render(talk); }).find("messages[2].tool_calls[0]"), std::string::npos);
  arguments = "[1]";
  EXPECT_NE(error_of([&] { chat->render(talk); }).find("an array"), std::string::npos);
  arguments = "";
  EXPECT_EQ(chat->render(talk), R"(SHow warm?{}{"t":21})");
}

TEST(ChatTemplate, F10_RefusalInTheTemplatesOwnWords) {
  const auto chat = jinja_template(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}{{ "
      "messages[0].content }}");
  EXPECT_NE(error_of([&] { chat->render(json(kToolTalk)); }).find("no system role"), std::string::npos);
  EXPECT_EQ(chat->render_prompt("still there"), "still there");
}

constexpr std::string_view kHalfAnswer =
    R"([{"role": "user", "content": "Count to four"}, {"role": "assistant", "content": "1, 2,"}])";

TEST(ChatTemplate, F11_ContinuesTheLastMessage) {
  for (const char* name : {"smollm2", "chatml", "qwen2.5", "qwen3", "smollm3", "llama3", "mistral_nemo"}) {
    const std::string prompt = model_template(name)->render(
        json(kHalfAnswer), {.add_generation_prompt = false, .continue_final_message = true});
    EXPECT_TRUE(prompt.ends_with("1, 2,")) << name << ": " << prompt;
  }
  EXPECT_EQ(jinja_template(kChatml)->render(json(kHalfAnswer),
                                            {.add_generation_prompt = false, .continue_final_message = true}),
            "<|im_start|>user\nCount to four<|im_end|>\n<|im_start|>assistant\n1, 2,");
}

TEST(ChatTemplate, F11_BothFlagsExcludeEachOther) {
  const RenderOptions both{.add_generation_prompt = true, .continue_final_message = true};
  for (const auto& chat : {jinja_template(kChatml), make_catalogue_template({.model_name = "qwen"})})
    EXPECT_NE(error_of([&] { chat->render(json(kHalfAnswer), both); }).find("add_generation_prompt"),
              std::string::npos);
}

TEST(ChatTemplate, F11_TextThatTheTemplateChangesCannotBeContinued) {
  const auto chat = jinja_template(
      "{% for m in messages %}{{ m.content|upper }}{% endfor %}{% if add_generation_prompt %}>{% endif %}");
  const Json messages = json(R"([{"role": "assistant", "content": "abc"}])");
  EXPECT_NE(error_of([&] {
              chat->render(messages, {.add_generation_prompt = false, .continue_final_message = true});
            }).find("changes the text"),
            std::string::npos);
  EXPECT_EQ(chat->render(messages), "ABC>");  // without being told to continue, a new turn is opened
}

TEST(ChatTemplate, LastAssistantMessageIsAPrefill) {
  EXPECT_EQ(jinja_template(kChatml)->render(json(kHalfAnswer)),
            "<|im_start|>user\nCount to four<|im_end|>\n<|im_start|>assistant\n1, 2,");
  EXPECT_EQ(jinja_template(kChatml)->render(json(kHalfAnswer), {.add_generation_prompt = false}),
            "<|im_start|>user\nCount to four<|im_end|>\n<|im_start|>assistant\n1, 2,<|im_end|>\n");
}

TEST(ChatTemplate, ToolsAndExtraVariablesReachTheTemplate) {
  const auto chat =
      jinja_template("{{ tools|tojson }} {{ mode }} {{ documents }} {{ enable_thinking is defined }}");
  RenderOptions options;
  options.tools = json(R"([{"name": "f"}, {"type": "function", "function": {"name": "g"}}])");
  options.extra = {{"mode", "m"}};
  EXPECT_EQ(
      chat->render(JsonArray(), options),
      R"([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}] m None False)");
  EXPECT_EQ(chat->render(JsonArray()), "null  None False");
  options.extra = {{"messages", nullptr}};
  EXPECT_NE(error_of([&] { chat->render(JsonArray(), options); }).find("\"messages\""), std::string::npos);
}

TEST(ChatTemplate, MalformedMessagesAreNamed) {
  const auto chat = jinja_template(kChatml);
  const std::pair<const char*, const char*> kBad[] = {
      {R"({"role": "user"})", "messages: found an object"},
      {R"(["x"])", "messages[0]: found a string"},
      {R"([{"content": "x"}])", "messages[0]: role"},
      {R"([{"role": 5, "content": "x"}])", "messages[0]: role"},
      {R"([{"role": "user", "content": 5}])", "messages[0].content: found an integer"},
      {R"([{"role": "user", "content": [5]}])", "messages[0].content[0]: found an integer"},
      {R"([{"role": "assistant", "tool_calls": [5]}])", "messages[0].tool_calls[0]"},
  };
  for (const auto& [messages, want] : kBad)
    EXPECT_NE(error_of([&] { chat->render(json(messages)); }).find(want), std::string::npos) << messages;
  EXPECT_EQ(chat->render(Json("hi")), chat->render_prompt("hi"));
}

TEST(ChatTemplateConfig, FromTextAndFile) {
  const std::string text =
      R"({"model_name": "m", "system": "<s>", "capability": "chat", "eoa": null, "stop_words": ["x", "y"]})";
  const std::string path = testing::TempDir() + "chat_template_config.json";
  std::ofstream(path) << text;
  for (const std::string& source : {text, path}) {
    const ChatTemplateConfig config = ChatTemplateConfig::from_json(source);
    EXPECT_EQ(config.model_name, "m");
    EXPECT_EQ(config.system, "<s>");
    EXPECT_EQ(config.eoa, std::nullopt);
    EXPECT_EQ(config.stop_words, (std::vector<std::string>{"x", "y"}));
  }
  std::filesystem::remove(path);
}

TEST(ChatTemplateConfig, BadInputSaysWhat) {
  const auto from = [](const std::string& text) { return [text] { ChatTemplateConfig::from_json(text); }; };
  EXPECT_NE(error_of(from(R"({"nope": 1})")).find("\"nope\""), std::string::npos);
  EXPECT_NE(error_of(from(R"({"system": 1})")).find("\"system\" is an integer"), std::string::npos);
  EXPECT_NE(error_of(from(R"({"stop_words": "x"})")).find("stop_words"), std::string::npos);
  EXPECT_NE(error_of(from("no/such/file")).find("no/such/file"), std::string::npos);
  EXPECT_NE(error_of(from("{"), ErrorCode::kInvalidData).find("line 1"), std::string::npos);
}

std::shared_ptr<const ChatTemplate> choose(const std::string& path, const std::string& source,
                                           std::optional<ChatTemplateConfig> config = std::nullopt) {
  return choose_chat_template(path, config, source, "<s>", "</s>");
}

TEST(ChatTemplateChoice, ConfigThenOwnTemplateThenPathThenBase) {
  EXPECT_EQ(choose("/m/vicuna-7b", kChatml, {{.model_name = "qwen"}})->name(), "qwen");
  EXPECT_EQ(choose("/m/vicuna-7b", kChatml)->name(), "jinja");
  EXPECT_EQ(choose("/m/vicuna-7b", "")->name(), "vicuna");
  EXPECT_EQ(choose("/m/unheard-of", "")->name(), "base");
  EXPECT_EQ(choose("/m/vicuna-7b", kChatml, {{.model_name = "hf"}})->name(), "jinja");
  EXPECT_NE(error_of([] { choose("/m/x", "", {{.model_name = "hf"}}); }).find("there is none"),
            std::string::npos);
}

TEST(ChatTemplateChoice, MarkersWithoutANameAreATemplateOfTheirOwn) {
  const auto chat = choose("/m/vicuna-7b", kChatml, {{.user = "U:", .assistant = "A:"}});
  EXPECT_EQ(chat->render_prompt("x"), "U:xA:");
}

TEST(ChatTemplateChoice, InstructionAndCapabilityApplyToTheOwnTemplate) {
  const ChatTemplateConfig config{.meta_instruction = "Be brief.", .stop_words = {{"X"}}};
  const auto chat = choose("/m/x", kChatml, config);
  EXPECT_EQ(
      chat->render_prompt("Hi"),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(count(chat->render(json(kToolTalk)), "Be brief."), 0u);  // the caller's system message counts
  EXPECT_EQ(chat->stop_words(), std::vector<std::string>{"X"});
  EXPECT_EQ(choose("/m/x", kChatml, {{.capability = "completion"}})->render_prompt("Hi"), "Hi");
  EXPECT_NE(error_of([] { choose("/m/x", kChatml, {{.capability = "infilling"}}); }).find("codellama"),
            std::string::npos);
}

TEST(ChatTemplateChoice, BrokenTemplateOfACheckpointIsAnError) {
  EXPECT_NE(error_of([] { choose("/m/x", "{% if %}"); }, ErrorCode::kInvalidData).find("line 1"),
            std::string::npos);
}

}  // namespace
}  // namespace lmdeploy
