// Which texts each kind of format admits, byte by byte.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/text/grammar/compile.h"

namespace lmdeploy::grammar {
namespace {

// Single bytes, then some words.
std::shared_ptr<const Vocabulary> byte_vocabulary(std::vector<std::string> words = {}) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.insert(bytes.end(), words.begin(), words.end());
  return std::make_shared<const Vocabulary>(std::move(bytes));
}

std::shared_ptr<const CompiledGrammar> schema_grammar(const std::string& schema, bool strict = false,
                                                      bool compact = false) {
  ResponseFormat format;
  format.kind = ResponseFormat::Kind::kJsonSchema;
  format.schema = parse_json(schema, "schema");
  format.strict = strict;
  format.compact = compact;
  return compile(format, byte_vocabulary(), "f");
}

std::shared_ptr<const CompiledGrammar> regex_grammar(const std::string& pattern) {
  ResponseFormat format;
  format.kind = ResponseFormat::Kind::kRegex;
  format.pattern = pattern;
  return compile(format, byte_vocabulary(), "f");
}

bool admits(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text) {
  Matcher matcher = grammar->matcher();
  return matcher.accept_bytes(text) && matcher.can_stop();
}

void expect_admits(const std::string& schema, const std::vector<std::string>& good,
                   const std::vector<std::string>& bad) {
  const auto grammar = schema_grammar(schema);
  for (const std::string& text : good)
    EXPECT_TRUE(admits(grammar, text)) << schema << " should admit " << text;
  for (const std::string& text : bad)
    EXPECT_FALSE(admits(grammar, text)) << schema << " should refuse " << text;
}

void expect_schema_error(const std::string& schema, const std::vector<std::string>& words,
                         bool strict = false) {
  SCOPED_TRACE(schema);
  expect_error(ErrorCode::kInvalidArgument, words, [&] { schema_grammar(schema, strict); });
}

TEST(Schema, Scalars) {
  expect_admits(R"({"type":"null"})", {"null"}, {"nul", "true", ""});
  expect_admits(R"({"type":"boolean"})", {"true", "false"}, {"True", "1"});
  expect_admits(R"({"type":"integer"})", {"0", "-1", "10", "123456789012345"},
                {"01", "+1", "1.0", "1e2", "-", "-0", "--1"});
  expect_admits(R"({"type":"number"})", {"0", "-0.5", "1e5", "1.5E-10", "12.25"},
                {"1.", ".5", "1e", "0x1", "01"});
  expect_admits(R"({"enum":["red",1,2.5,null,true]})", {"\"red\"", "1", "2.5", "null", "true"},
                {"\"re\"", "2", "false"});
  expect_admits(R"({"const":{"a":[1,"x"]}})", {R"({"a":[1,"x"]})", "{ \"a\" : [\n1, \"x\"] }"},
                {"{}", R"({"a":[1]})"});
}

TEST(Schema, Strings) {
  expect_admits(R"({"type":"string"})",
                {"\"\"", "\"ab c\"", R"("\n\"\\\/\u00e9\ud83d\ude00")", "\"\xC3\xA9\xF0\x9F\x98\x80\""},
                {"\"", "\"\n\"", R"("\x")", R"("\ud83d")", R"("\ude00")", "\"\xC3\"", "\"\xED\xA0\x80\"",
                 "\"\xC0\x80\"", "ab"});
  expect_admits(R"({"type":"string","minLength":2,"maxLength":3})",
                {"\"ab\"", "\"abc\"", "\"\xF0\x9F\x98\x80\xC3\xA9\"", R"("\n\u00e9")", R"("\ud83d\ude00a")"},
                {"\"a\"", "\"abcd\"", "\"\"", R"("\n")"});
  expect_admits(R"({"type":"string","pattern":"^a+b$"})", {"\"aab\""}, {"\"b\"", "\"aabc\"", "\"xab\""});
  expect_admits(R"({"type":"string","pattern":"ab"})", {"\"ab\"", "\"xabx\"", "\"\\\"ab\\n\""},
                {"\"a\"", "\"ba\""});
  expect_admits(R"({"type":"string","pattern":"^a|b$"})", {"\"ax\"", "\"xb\""}, {"\"xa\"", "\"bx\""});
  expect_admits(R"({"type":"string","pattern":"^[a-z]+$","minLength":2,"maxLength":3})",
                {"\"ab\"", "\"abc\""}, {"\"a\"", "\"abcd\"", "\"a1\""});
  expect_admits(R"({"type":"string","pattern":"^[^a]$"})",
                {"\"b\"", R"("\"")", R"("\\")", R"("\n")", R"("\u0001")", "\"\xC3\xA9\""},
                {"\"a\"", "\"\"\"", "\"\n\""});
}

TEST(Schema, Formats) {
  const auto format = [](const std::string& name) {
    return cat(R"({"type":"string","format":")", name, "\"}");
  };
  expect_admits(format("date"), {"\"2024-02-29\"", "\"2023-12-31\"", "\"2000-02-29\""},
                {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-13-01\"", "\"2023-04-31\"", "\"0000-01-01\""});
  expect_admits(format("time"), {"\"23:59:59Z\"", "\"00:00:00.5+01:30\""}, {"\"24:00:00Z\"", "\"12:00\""});
  expect_admits(format("date-time"), {"\"2024-02-29T12:00:00Z\""}, {"\"2024-02-30T12:00:00Z\""});
  expect_admits(format("uuid"), {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""});
  expect_admits(format("email"), {"\"a.b@example.com\""}, {"\"a@b\"", "\"@example.com\""});
  expect_admits(format("ipv4"), {"\"1.22.255.0\""}, {"\"1.2.3\"", "\"256.1.1.1\"", "\"01.1.1.1\""});
  expect_admits(
      format("ipv6"),
      {"\"::1\"", "\"::\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1:2\"", "\"1::\"", "\"1:2:3:4:5:6::8\""},
      {"\"1:2\"", "\"1::2::3\"", "\":::\"", "\"12345::\"", "\"1:2:3:4:5:6:7::8\""});
  expect_admits(format("hostname"), {"\"a.b-c.org\"", "\"x\""}, {"\"-a\"", "\"a..b\""});
  expect_admits(format("uri"), {"\"https://example.com/a?b=c#d\"", "\"mailto:a@b.c\"", "\"urn:isbn:123\""},
                {"\"/a\"", "\"http//x\""});
}

TEST(Schema, F32_WhiteSpaceIsBounded) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})";
  const std::string twenty(20, ' ');
  expect_admits(schema, {"{\"a\":1}", "{\n" + twenty + "\"a\" : 1\n}", "{\t\"a\": 1 }"},
                {"{\n\n\"a\":1}", "{" + twenty + " \"a\":1}", " {\"a\":1}", "{\"a\":1} ", "{\r\"a\":1}"});
  const auto compact = schema_grammar(schema, false, true);
  EXPECT_TRUE(admits(compact, "{\"a\":1}"));
  EXPECT_FALSE(admits(compact, "{\"a\": 1}"));
}

TEST(Schema, F33_ReferencesAreFollowed) {
  expect_admits(
      R"({"type":"object","properties":{"c":{"$ref":"#/$defs/C"},"kids":{"type":"array","items":{"$ref":"#"},"maxItems":2}},
                    "required":["c"],"$defs":{"C":{"enum":["red","blue"]}}})",
      {R"({"c":"red"})", R"({"c":"blue","kids":[{"c":"red"}]})", R"({"c":"red","kids":[]})"},
      {R"({"c":{}})", R"({"c":"green"})", R"({"c":"red","kids":[{"c":"red"},{"c":"red"},{"c":"red"}]})"});
  expect_schema_error(R"({"properties":{"a":{"$ref":"#/$defs/none"}},"type":"object"})",
                      {"f.json_schema.schema#/properties/a/$ref", "#/$defs/none"});
  expect_schema_error(R"({"$ref":"other.json"})", {"other.json"});
  expect_schema_error(R"({"$ref":"#"})", {"defined by itself"});
  expect_schema_error(R"({"anyOf":[{"type":"string"},{"$ref":"#"}]})", {"defined by itself"});
  expect_schema_error(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
                      {"contradict"});
  expect_admits(R"({"$ref":"#n","$defs":{"x":{"$anchor":"n","type":"integer"}}})", {"1"}, {"\"\""});
  expect_admits(R"({"$ref":"#/$defs/a~1b%25","$defs":{"a/b%":{"type":"integer"}}})", {"1"}, {"\"\""});
}

TEST(Schema, F34_AdditionalProperties) {
  const auto schema = [](const std::string& more) {
    return cat(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"])", more, "}");
  };
  expect_admits(schema(R"(,"additionalProperties":false)"), {R"({"a":1})"}, {R"({"a":1,"z":2})", "{}"});
  expect_admits(schema(R"(,"additionalProperties":{"type":"string"})"),
                {R"({"a":1,"z":"q"})", R"({"a":1,"aa":"q","":""})"},
                {R"({"a":1,"z":2})", R"({"a":1,"a":"q"})", R"({"z":"q"})", R"({"a":1,"\u0061":"q"})"});
  expect_admits(schema(""), {R"({"a":1,"z":[{}]})"}, {R"({"a":"1"})"});
  const auto strict = schema_grammar(schema(""), /*strict=*/true);
  EXPECT_TRUE(admits(strict, R"({"a":1})"));
  EXPECT_FALSE(admits(strict, R"({"a":1,"z":2})"));
}

TEST(Schema, F35_NullableForms) {
  expect_admits(R"({"anyOf":[{"enum":["c","f"]},{"type":"null"}]})", {"\"c\"", "\"f\"", "null"},
                {"\"k\"", "\"cf\""});
  expect_admits(R"({"type":["integer","null"]})", {"7", "null"}, {"\"7\"", "7.5"});
  expect_admits(R"({"type":"string","nullable":true})", {"\"7\"", "null"}, {"7"});
}

TEST(Schema, F36_IntegerRanges) {
  expect_admits(R"({"type":"integer","minimum":-12,"maximum":305})",
                {"-12", "-1", "0", "9", "99", "100", "299", "305"},
                {"-13", "306", "007", "1.0", "1e2", "+3", "-0", "1000", "-100", ""});
  expect_admits(R"({"type":"integer","exclusiveMinimum":0})", {"1", "10", "999999"}, {"0", "-1"});
  expect_admits(R"({"type":"integer","minimum":0,"exclusiveMinimum":true})", {"1"}, {"0"});
  expect_admits(R"({"type":"integer","minimum":7})", {"7", "10", "1000000"}, {"6", "06", "-7"});
  expect_admits(R"({"type":"integer","maximum":-5})", {"-5", "-6", "-1000"}, {"-4", "0", "5"});
  expect_schema_error(R"({"type":"integer","minimum":3,"maximum":2})", {"contradict"});
  for (int low = -23; low <= 23; low += 7)
    for (int high = low; high <= 130; high += 29) {
      const auto grammar = schema_grammar(
          cat(R"({"type":"integer","minimum":)", low, R"(,"exclusiveMaximum":)", high + 1, "}"));
      for (int value = -160; value <= 160; ++value)
        EXPECT_EQ(admits(grammar, std::to_string(value)), low <= value && value <= high)
            << low << " " << high << " " << value;
    }
}

TEST(Schema, NumberRangesAndMultiples) {
  expect_admits(R"({"type":"number","minimum":-0.5,"exclusiveMaximum":2.25})",
                {"-0.5", "-0.49", "0", "0.0", "2.2499", "2", "2.249999999999"},
                {"-0.51", "2.25", "2.250", "3", "2.3", "-1", "1e0"});
  expect_admits(R"({"type":"number","exclusiveMinimum":0,"maximum":1})", {"0.001", "1", "1.000"},
                {"0", "0.0", "1.001"});
  expect_admits(R"({"type":"number","minimum":1e3,"maximum":1.5e3})", {"1000", "1499.5", "1500"},
                {"999.9", "1500.1"});
  expect_admits(R"({"type":"integer","multipleOf":7,"minimum":-20,"maximum":100})", {"0", "7", "98", "-14"},
                {"1", "105", "-21", "-7.0"});
  expect_admits(R"({"type":"number","multipleOf":0.25})", {"0.25", "0.5", "3", "-1.75", "1.50"},
                {"0.3", "0.125", "0.255"});
  expect_admits(R"({"type":"integer","multipleOf":0.5})", {"3"}, {"3.5"});
  expect_admits(R"({"type":"integer","multipleOf":2.5})", {"5", "10"}, {"2", "3"});
  expect_schema_error(R"({"type":"number","multipleOf":0})", {"multipleOf", "above 0"});
}

TEST(Schema, Arrays) {
  expect_admits(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
                {"[1]", "[1,2]", "[ 1 , 2,3 ]"}, {"[]", "[1,2,3,4]", "[1,]", "[,1]", "[\"a\"]"});
  expect_admits(R"({"type":"array","items":{"type":"integer"},"maxItems":0})", {"[]"}, {"[1]"});
  expect_admits(
      R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":1})",
      {"[1]", "[1,\"a\"]"}, {"[]", "[\"a\"]", "[1,\"a\",2]"});
  expect_admits(R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"}})",
                {"[]", "[1]", "[1,null,null]"}, {"[null]", "[1,2]"});
  expect_admits(
      R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},"minItems":3,"maxItems":4})",
      {"[1,null,null]", "[1,null,null,null]"}, {"[1,null]", "[1,null,null,null,null]"});
  expect_admits(R"({"type":"array","items":{"type":"array","items":{}}})", {"[[],[1,{}]]"}, {"[1]"});
  expect_admits(R"({"type":"array","items":{"type":"integer"},"minItems":3})", {"[1,2,3]", "[1,2,3,4,5]"},
                {"[1,2]"});
}

TEST(Schema, Objects) {
  expect_admits(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":{"type":"integer"}},
                    "required":["b"],"additionalProperties":false})",
      {R"({"b":null})", R"({"a":1,"b":null})", R"({"b":null,"c":1})", R"({"a":1,"b":null,"c":2})"},
      {"{}", R"({"a":1})", R"({"b":null,"a":1})", R"({"a":1,"c":1})", R"({"b":null,})",
       R"({"b":null,"b":null})"});
  expect_admits(
      R"({"type":"object","patternProperties":{"^n_":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
      {R"({"n_x":1,"y":"z"})", "{}"}, {R"({"n_x":"1"})", R"({"y":1})"});
  expect_admits(
      R"({"type":"object","propertyNames":{"pattern":"^[a-z]$"},"additionalProperties":{"type":"integer"}})",
      {R"({"a":1,"b":2})"}, {R"({"ab":1})", R"({"A":1})"});
  expect_admits(R"({"type":"object","propertyNames":{"enum":["x","y"]}})", {R"({"x":1})"}, {R"({"z":1})"});
  expect_admits(
      R"({"type":"object","minProperties":1,"maxProperties":2,"additionalProperties":{"type":"integer"}})",
      {R"({"a":1})", R"({"a":1,"b":2})"}, {"{}", R"({"a":1,"b":2,"c":3})"});
  expect_admits(
      R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":2,"additionalProperties":false})",
      {R"({"a":1,"b":2})", R"({"b":1,"c":2})", R"({"a":1,"b":2,"c":3})"}, {"{}", R"({"a":1})"});
  expect_admits(
      R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"maxProperties":1,"additionalProperties":false})",
      {"{}", R"({"b":2})"}, {R"({"a":1,"b":2})"});
  expect_admits(R"({"type":"object","properties":{"a\"\n":{"type":"integer"}},"additionalProperties":false})",
                {R"({"a\"\n":1})"}, {});
  expect_schema_error(R"({"type":"object","properties":{"a":false},"required":["a"]})", {"contradict"});
}

TEST(Schema, CombinedSchemas) {
  expect_admits(R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
                             {"properties":{"b":{"type":"string"},"a":{"minimum":5}},"required":["b"]}]})",
                {R"({"a":5,"b":""})"}, {R"({"a":4,"b":""})", R"({"a":5})", R"({"b":""})"});
  expect_admits(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"additionalProperties":false,
                    "anyOf":[{"required":["a"]},{"required":["b"]}]})",
      {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"}, {"{}"});
  expect_admits(R"({"$ref":"#/$defs/n","minimum":10,"$defs":{"n":{"type":"integer","maximum":20}}})",
                {"10", "20"}, {"9", "21"});
  expect_admits(
      R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"],"additionalProperties":false},
                             {"type":"object","properties":{"k":{"const":"b"}},"required":["k"],"additionalProperties":false}]})",
      {R"({"k":"a","x":1})", R"({"k":"b"})"}, {R"({"k":"a"})", R"({"k":"b","x":1})"});
  expect_admits(R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"\""}, {"1.5"});
  expect_admits(R"({"enum":[1,"a",2,null],"type":["integer","null"],"minimum":2})", {"2", "null"},
                {"1", "\"a\""});
  expect_admits(R"({"allOf":[{"enum":["a","b"]},{"enum":["b","c"]}]})", {"\"b\""}, {"\"a\"", "\"c\""});
  expect_admits(R"({"allOf":[{"pattern":"^a"},{"pattern":"b$"}],"type":"string"})", {"\"ab\"", "\"axb\""},
                {"\"a\"", "\"b\""});
  expect_schema_error(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", {"oneOf", "members 0 and 1"});
  expect_admits(R"({"not":{"type":"null"},"type":["null","boolean"]})", {"true"}, {"null"});
}

TEST(Schema, F37_RefusesWhatItCannotEnforce) {
  expect_schema_error(R"({"type":"string","pattern":"^ab\\!("})",
                      {"f.json_schema.schema#/pattern", "column"});
  expect_schema_error(R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})",
                      {"f.json_schema.schema#/properties/a/uniqueItems", "not supported"});
  expect_schema_error(R"({"if":{},"then":{}})", {"#/if"});
  expect_schema_error(R"({"type":"strin"})", {"#/type", "\"strin\""});
  expect_schema_error(R"({"type":"object","properties":[]})", {"#/properties", "an array"});
  expect_schema_error(R"({"type":"object","properties":{"a/b":5}})", {"#/properties/a~1b", "an integer"});
  expect_schema_error(R"({"enum":[]})", {"#/enum"});
  expect_schema_error(R"({"type":"string","minLength":-1})", {"#/minLength", "-1"});
  expect_schema_error(R"({"type":"string","x-unknown":1})", {"#/x-unknown", "strict"}, /*strict=*/true);
  const auto warned = schema_grammar(R"({"type":"string","x-unknown":1,"format":"color"})");
  EXPECT_EQ(warned->warnings().size(), 2u);
}

TEST(Schema, NumbersThatJsonCannotWriteAreRefused) {
  for (const char* keyword :
       {"const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
    expect_schema_error(cat("{\"", keyword, "\":1e999}"),
                        {cat("f.json_schema.schema#/", keyword), "infinity"});
  expect_schema_error(R"({"enum":[1,{"a":[-1e999]}]})", {"#/enum/1/a/0", "-infinity"});
  expect_schema_error(R"({"properties":{"a":{"minimum":1e999}}})", {"#/properties/a/minimum"});
}

TEST(Schema, SaysWhichLimitLeavesNothing) {
  for (const char* bounds : {R"("minimum":1e20,"maximum":1e21)", R"("minimum":1e50)", R"("maximum":-1e308)"})
    expect_schema_error(cat(R"({"type":"number",)", bounds, "}"), {"schema#: found bounds", "15 digits"});
  expect_schema_error(R"({"minimum":1e308})", {"found bounds", "15 digits"});
  expect_schema_error(R"({"properties":{"a":{"type":"integer","minimum":1e45}},"required":["a"]})",
                      {"schema#/properties/a: found bounds", "40 digits"});
  expect_schema_error(R"({"type":"string","minLength":1000000000000})", {"minLength 1000000000000"});
  expect_schema_error(R"({"type":"array","minItems":1000000000000})", {"minItems 1000000000000"});
  expect_admits(R"({"type":"integer","minimum":1e30})", {"1" + std::string(30, '0')}, {"1"});
  expect_admits(R"({"anyOf":[{"type":"number","minimum":1e50},{"type":"null"}]})", {"null"}, {"1"});
}

TEST(Schema, LongListsOfValuesAreCheap) {
  std::string schema = R"({"type":"string","enum":[)";
  for (int i = 0; i < 50'000; ++i) schema += cat(i == 0 ? "" : ",", "\"v", i, "\"");
  expect_admits(schema + "]}", {"\"v0\"", "\"v49999\""}, {"\"v50000\"", "\"w\""});
}

// Neither counts nor optional keys are written out: what is compiled stays as small as the schema.
TEST(Schema, F38_LargeOnesStaySmall) {
  const auto counted =
      schema_grammar(R"({"type":"array","items":{"type":"number"},"minItems":10,"maxItems":1000})");
  std::string properties;
  for (int i = 0; i < 200; ++i) properties += cat(i == 0 ? "" : ",", "\"p", i, "\":{\"type\":\"integer\"}");
  const auto wide = schema_grammar(
      cat(R"({"type":"object","additionalProperties":false,"properties":{)", properties, "}}"));
  EXPECT_LT(counted->num_nodes(), 1000U);
  EXPECT_LT(wide->num_nodes(), 10'000U);
  EXPECT_TRUE(admits(wide, R"({"p3":1,"p199":2})"));
  EXPECT_FALSE(admits(wide, R"({"p199":1,"p3":2})")) << "in the order in which they are declared";
  for (const auto& grammar : {counted, wide}) {
    Matcher matcher = grammar->matcher();
    for (const char c : std::string_view(grammar == counted ? "[1,22,3.5" : R"({"p17":1,"p170":)"))
      ASSERT_TRUE(matcher.accept_bytes(std::string_view(&c, 1)));
    EXPECT_LT(grammar->automaton()->memory(), size_t{1} << 20);
  }
}

TEST(Schema, HostileOnesEndInOneError) {
  std::string deep;
  for (int i = 0; i < 60; ++i) deep += R"({"anyOf":[)";
  deep += "true";
  for (int i = 0; i < 60; ++i) deep += R"(,{"type":"null"}]})";
  EXPECT_TRUE(admits(schema_grammar(deep), "null"));
  std::string doubling = R"({"type":"array","$defs":{)";
  for (int i = 0; i < 40; ++i)
    doubling += cat(i > 0 ? "," : "", "\"d", i, R"(":{"anyOf":[{"$ref":"#/$defs/d)", i + 1,
                    R"("},{"$ref":"#/$defs/d)", i + 1, R"("},{"minimum":)", i, "}]}");
  doubling +=
      R"(,"d40":{"type":"null"}},"items":{"allOf":[{"$ref":"#/$defs/d0"},{"$ref":"#/$defs/d1"},{"$ref":"#/$defs/d2"}]}})";
  expect_schema_error(doubling, {"expected fewer"});
  expect_admits(R"({"type":"string","maxLength":1000000000})", {"\"a\""}, {"a"});
  expect_admits(R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":1000000000})",
                {"[1,2]"}, {"[1]"});
  expect_schema_error(R"({"type":"string","pattern":"^(ab|c)*$","maxLength":1000000000})",
                      {"#/pattern", "states"});
  expect_schema_error(R"({"type":"string","pattern":"((a{0,1000}){0,1000}){0,1000}"})",
                      {"regular expression"});
  EXPECT_TRUE(admits(schema_grammar(R"({"type":"string","pattern":"(.*a){20}b"})"),
                     "\"" + std::string(20, 'a') + "b\""));
  expect_schema_error(R"({"type":"string","pattern":"(x|y)*x(x|y){40}$"})", {"#/pattern"});
  std::string patterns = R"({"type":"object","properties":{)";
  for (int i = 0; i < 400; ++i)
    patterns +=
        cat(i > 0 ? "," : "", "\"p", i, R"(":{"type":"string","pattern":"(x|y)*x(x|y){10}z{)", i, R"(}$"})");
  expect_schema_error(patterns + "}}", {"expected a"});
  std::string members = R"({"oneOf":[)";
  for (int i = 0; i < 450; ++i) {
    members +=
        cat(i > 0 ? "," : "", R"({"type":"object","required":["k"],"properties":{"k":{"const":)", i, "}");
    for (int k = 0; k < 50; ++k) members += cat(R"(,"p)", k, R"(":{})");
    members += "}}";
  }
  expect_schema_error(members + "]}", {"steps"});
}

TEST(RegexSchema, WholeTextMatches) {
  const auto grammar = regex_grammar("(?:yes|no)+!?|\\d{2,3}");
  for (const char* text : {"yes", "noyes!", "12", "123"}) EXPECT_TRUE(admits(grammar, text)) << text;
  for (const char* text : {"", "y", "1", "1234", "yes!!", "xyes"})
    EXPECT_FALSE(admits(grammar, text)) << text;
  EXPECT_TRUE(admits(regex_grammar("^[^\\x00-\\x7f]{2}$"), "\xC3\xA9\xF0\x9F\x98\x80"));
  EXPECT_TRUE(admits(regex_grammar("a{2}{"), "aa{") && admits(regex_grammar("[]a]"), "]"));
}

TEST(RegexSchema, SaysWhereItIsMalformed) {
  for (const char* pattern :
       {"(",     "a)",     "[a",  "*a", "a**",   "a{3,2}", "(?=a)", "(?<!a)",  "\\1",   "\\b",
        "(?i)a", "\\p{L}", "a++", "\\", "[b-a]", "\\q",    "\\u12", "\\ud800", "(?P<n", "x{99999999999}"})
    expect_error(ErrorCode::kInvalidArgument, {"f.regex_schema"}, [&] { regex_grammar(pattern); });
}

TEST(Choice, OneOfTheTexts) {
  ResponseFormat format;
  format.kind = ResponseFormat::Kind::kChoice;
  format.choices = {"yes", "no", "nope"};
  const auto grammar = compile(format, byte_vocabulary(), "f");
  EXPECT_TRUE(admits(grammar, "yes") && admits(grammar, "no") && admits(grammar, "nope"));
  EXPECT_FALSE(admits(grammar, "nop") || admits(grammar, "yesno") || admits(grammar, ""));
  Matcher matcher = grammar->matcher();
  EXPECT_EQ(matcher.forced_bytes(), "");
  ASSERT_TRUE(matcher.accept_bytes("n"));
  EXPECT_EQ(matcher.forced_bytes(), "o");
  ASSERT_TRUE(matcher.accept_bytes("o"));
  EXPECT_TRUE(matcher.can_stop() && !matcher.is_complete());
  ASSERT_TRUE(matcher.accept_bytes("pe"));
  EXPECT_TRUE(matcher.is_complete());
}

}  // namespace
}  // namespace lmdeploy::grammar
