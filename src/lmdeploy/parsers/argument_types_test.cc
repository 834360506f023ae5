#include "lmdeploy/parsers/argument_types.h"

#include <gtest/gtest.h>

#include "lmdeploy/parsers/python_literal.h"

namespace lmdeploy {
namespace {

std::string typed(const std::string& schema, std::string_view value) {
  const Json parameters =
      parse_json(R"({"$defs": {"Point": {"type": "object"}, "Loop": {"$ref": "#/$defs/Loop"},
      "Color": {"enum": ["red", "1"]}, "Step": {"anyOf": [{"$ref": "#/$defs/Step"}, {"$ref": "#/$defs/Step"}]}},
      "properties": {"x": )" +
                     schema + "}}",
                 "schema");
  return typed_argument(&parameters, "x", value);
}

TEST(ArgumentTypes, TheSchemaDecides) {
  EXPECT_EQ(typed(R"({"type": "string"})", "1"), R"("1")");
  EXPECT_EQ(typed(R"({"type": "integer"})", " 12345678901234567890\n"), "12345678901234567890");
  EXPECT_EQ(typed(R"({"type": "number"})", "1.50"), "1.50");
  EXPECT_EQ(typed(R"({"type": "number"})", "one and a half"), R"("one and a half")");
  EXPECT_EQ(typed(R"({"type": "boolean"})", "True"), "true");
  EXPECT_EQ(typed(R"({"type": "object"})", R"({"a": 1e5})"), R"({"a": 1e5})");
  EXPECT_EQ(typed(R"({"type": ["integer", "string"]})", "1"), R"("1")");
  EXPECT_EQ(typed(R"({"type": ["string", "null"]})", "None"), "null");
  EXPECT_EQ(typed(R"({"type": "string"})", "null"), R"("null")");
  EXPECT_EQ(typed("{}", "1"), R"("1")");
  EXPECT_EQ(typed("true", "1"), R"("1")");
}

TEST(ArgumentTypes, SchemasWithoutATypeOfTheirOwn) {
  EXPECT_EQ(typed(R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", "7"), "7");
  EXPECT_EQ(typed(R"({"oneOf": [{"type": "array"}]})", "[1]"), "[1]");
  EXPECT_EQ(typed(R"({"enum": [1, 2]})", "2"), "2");
  EXPECT_EQ(typed(R"({"enum": ["1", "2"]})", "2"), R"("2")");
  EXPECT_EQ(typed(R"({"const": null})", "null"), "null");
  EXPECT_EQ(typed(R"({"$ref": "#/$defs/Point"})", R"({"x": 1})"), R"({"x": 1})");
  EXPECT_EQ(typed(R"({"allOf": [{"$ref": "#/$defs/Color"}]})", "1"), R"("1")");
  EXPECT_EQ(typed(R"({"$ref": "#/$defs/Nowhere"})", "1"), R"("1")");
  EXPECT_EQ(typed(R"({"$ref": "elsewhere.json"})", "1"), R"("1")");
}

TEST(ArgumentTypes, SchemasThatReferToThemselvesEnd) {
  EXPECT_EQ(typed(R"({"$ref": "#/$defs/Loop"})", "1"), R"("1")");
  EXPECT_EQ(typed(R"({"$ref": "#/$defs/Step"})", "1"), R"("1")");
}

TEST(ArgumentTypes, FunctionsAreFoundByName) {
  const Json tools =
      parse_json(R"([7, {"type": "function", "function": {"name": "f", "parameters": {"a": 1}}},
      {"name": "g", "parameters": {"b": 1}}, {"function": {"name": "h"}}])",
                 "tools");
  EXPECT_EQ(to_json_text(*find_parameters(tools, "f")), R"({"a":1})");
  EXPECT_EQ(to_json_text(*find_parameters(tools, "g")), R"({"b":1})");
  EXPECT_EQ(find_parameters(tools, "h"), nullptr);
  EXPECT_EQ(find_parameters(tools, "i"), nullptr);
  EXPECT_EQ(find_parameters(nullptr, "f"), nullptr);
}

TEST(PythonLiteral, BecomesJson) {
  const auto json = [](std::string_view text) { return python_literal_to_json(text).value_or("nothing"); };
  EXPECT_EQ(json("{'a': True, \"b\": None, 3: 1}"), "nothing");  // JSON has no such keys
  EXPECT_EQ(json("{'a': True, \"b\": [None, False]}"), R"({"a": true, "b": [null, false]})");
  EXPECT_EQ(json("(1, -2.5, 1e-07,)"), "[1, -2.5, 1e-07]");
  EXPECT_EQ(json("[1, ]"), "[1]");
  EXPECT_EQ(json(R"('it\'s \"\\\n\t\x41\u00e9\U0001f389 "x"')"), R"("it's \"\\\n\tAé🎉 \"x\"")");
  EXPECT_EQ(json(R"("it's")"), R"("it's")");
  for (const char* none :
       {"", "a", "'a", "'\\", "'\\q'", "'\\x4'", "'\\ud800'", "'\\U00110000'", "[1", "Truest", "{1}"})
    EXPECT_EQ(json(none), "nothing") << none;
}

}  // namespace
}  // namespace lmdeploy
