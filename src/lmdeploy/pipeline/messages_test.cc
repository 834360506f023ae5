#include "lmdeploy/pipeline/messages.h"

#include "lmdeploy/core/expect_error.h"

namespace lmdeploy {
namespace {

Json parse(std::string_view text) { return parse_json(text, "test"); }

TEST(Messages, PassThroughAndJoinedParts) {
  const Json plain = parse(R"([{"role":"user","content":"hi","name":"bob"}])");
  EXPECT_EQ(normalize_messages(plain), plain);
  EXPECT_EQ(normalize_messages(parse(
                R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])")),
            parse(R"([{"role":"user","content":"a\nb"}])"));
}

TEST(Messages, ToolCallsNeedNoContent) {
  const Json without = parse(R"([{"role":"assistant","tool_calls":[]}])");
  EXPECT_TRUE(normalize_messages(without).get_array()[0].get_object().at("content").is_null());
  EXPECT_NO_THROW(normalize_messages(parse(R"([{"role":"assistant","content":null,"tool_calls":[]}])")));
}

TEST(Messages, BadInput_NamesIndexAndField) {
  struct Bad {
    const char* json;
    const char* where;
    const char* found;
  };
  const std::vector<Bad> bad = {
      {"7", "prompt", "an integer"},
      {"{}", "prompt", "an object"},
      {R"([{"role":"user","content":"a"}, 5])", "messages[1]", "an integer"},
      {R"([{"content":"a"}])", "messages[0].role", "nothing"},
      {R"([{"role":3,"content":"a"}])", "messages[0].role", "an integer"},
      {R"([{"role":"user"}])", "messages[0].content", "nothing"},
      {R"([{"role":"user","content":null}])", "messages[0].content", "null"},
      {R"([{"role":"user","content":{}}])", "messages[0].content", "an object"},
      {R"([{"role":"user","content":[4]}])", "messages[0].content[0]", "an integer"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text", "nothing"},
  };
  for (const Bad& b : bad) {
    SCOPED_TRACE(b.json);
    expect_error(ErrorCode::kInvalidArgument, {b.where, b.found}, [&] { normalize_messages(parse(b.json)); });
  }
  expect_error(ErrorCode::kInvalidArgument, {"messages", "empty"}, [&] { normalize_messages(parse("[]")); });
  expect_error(ErrorCode::kUnsupported, {"messages[0].content[0]", "image_url"}, [&] {
    normalize_messages(
        parse(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"));
  });
}

}  // namespace
}  // namespace lmdeploy
