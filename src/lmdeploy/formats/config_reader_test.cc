// ConfigReader and token_ids_from: kinds, ranges, nesting, and messages that name file, key, found and
// expected.
#include <gtest/gtest.h>

#include <string>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/test_support.h"

namespace lmdeploy {
namespace {

Json json(std::string_view text) { return parse_json(text, "test"); }

TEST(ConfigReader, ReadsEachKind) {
  const Json config = json(R"({"i": 7, "d": 0.5, "b": true, "s": "silu", "n": null, "big": 5000000000})");
  const ConfigReader reader(config, "config.json");
  EXPECT_EQ(reader.get("i", 0), 7);
  EXPECT_EQ(reader.get("big", int64_t{0}), 5000000000);
  EXPECT_EQ(reader.get("d", 0.0), 0.5);
  EXPECT_EQ(reader.get("i", 0.0), 7.0);
  EXPECT_EQ(reader.get("b", false), true);
  EXPECT_EQ(reader.get("s", ""), "silu");
  EXPECT_EQ(reader.require_int("i"), 7);
  EXPECT_TRUE(reader.has("i"));
  EXPECT_FALSE(reader.has("n"));
  EXPECT_FALSE(reader.has("absent"));
}

TEST(ConfigReader, FallsBackWhenAbsentOrNull) {
  const Json config = json(R"({"n": null})");
  const ConfigReader reader(config, "config.json");
  for (const char* key : {"n", "absent"}) {
    EXPECT_EQ(reader.get(key, 3), 3);
    EXPECT_EQ(reader.get(key, 0.25), 0.25);
    EXPECT_EQ(reader.get(key, true), true);
    EXPECT_EQ(reader.get(key, "gelu"), "gelu");
    EXPECT_EQ(reader.find(key), nullptr);
    EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { reader.require_int(key); }),
                    cat("config.json: key \"", key, "\" is missing, expected an integer"));
    EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { reader.object(key); }),
                    "is missing, expected an object");
  }
}

TEST(ConfigReader, NullIsToldFromAbsent) {
  const Json config = json(R"({"n": null, "i": 7, "outer": 1, "text_config": {"outer": null}})");
  const ConfigReader reader(config, "config.json");
  EXPECT_TRUE(reader.is_null("n"));
  EXPECT_TRUE(reader.is_null("outer"));  // the nested config hides the other
  EXPECT_FALSE(reader.is_null("i"));
  EXPECT_FALSE(reader.is_null("absent"));
}

TEST(ConfigReader, WholeDoublesAreIntegers) {
  const Json config = json(R"({"a": 1e3, "b": 1.5, "c": 1e300, "d": -4.0, "e": 9007199254740993.0e1})");
  const ConfigReader reader(config, "config.json");
  EXPECT_EQ(reader.get("a", 0), 1000);
  EXPECT_EQ(reader.get("d", 0), -4);
  for (const char* key : {"b", "c", "e"})
    EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { reader.get(key, int64_t{0}); }),
                    "expected an integer");
}

TEST(ConfigReader, ChecksRanges) {
  const Json config = json(R"({"i32": 2147483648, "neg": -2147483649, "u64": 18446744073709551615})");
  const ConfigReader reader(config, "config.json");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { reader.get("i32", 0); }), "an integer of 32 bits");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { reader.get("neg", 0); }), "(-2147483649)");
  EXPECT_EQ(reader.get("i32", int64_t{0}), 2147483648);
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { reader.get("u64", int64_t{0}); }),
                  "expected an integer");
}

TEST(ConfigReader, NamesFileKeyFoundAndExpected) {
  const Json config =
      json(R"({"hidden_size": "many", "act": 3, "tie": 1, "eps": [], "rope_scaling": "yarn"})");
  const ConfigReader reader(config, "m/config.json");
  const auto message = [&](auto&& call) { return error_of(ErrorCode::kInvalidData, call); };
  EXPECT_EQ(message([&] { reader.get("hidden_size", 1); }),
            "m/config.json: key \"hidden_size\" is a string (\"many\"), expected an integer");
  EXPECT_EQ(message([&] { reader.get("act", "x"); }),
            "m/config.json: key \"act\" is an integer (3), expected a string");
  EXPECT_EQ(message([&] { reader.get("tie", true); }),
            "m/config.json: key \"tie\" is an integer (1), expected true or false");
  EXPECT_EQ(message([&] { reader.get("eps", 1.0); }),
            "m/config.json: key \"eps\" is an array, expected a number");
  EXPECT_EQ(message([&] { reader.object("rope_scaling"); }),
            "m/config.json: key \"rope_scaling\" is a string (\"yarn\"), expected an object");
  EXPECT_EQ(message([] { ConfigReader(json("[]"), "m/config.json"); }),
            "m/config.json: the config is an array, expected an object");
}

TEST(ConfigReader, ObjectsBelowSayWhereTheyAre) {
  const Json config = json(R"({"rope_scaling": {"factor": "4"}})");
  const ConfigReader scaling = ConfigReader(config, "config.json").object("rope_scaling");
  EXPECT_EQ(error_of(ErrorCode::kInvalidData, [&] { scaling.get("factor", 1.0); }),
            "config.json: rope_scaling: key \"factor\" is a string (\"4\"), expected a number");
}

TEST(ConfigReader, NestedTextConfigsComeFirst) {
  for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config"}) {
    const Json config = json(cat(R"({"hidden_size": 1, "vocab_size": 2, "sliding_window": 9, ")", key,
                                 R"(": {"hidden_size": 64, "sliding_window": null}})"));
    const ConfigReader reader(config, "config.json");
    EXPECT_EQ(reader.get("hidden_size", 0), 64) << key;
    EXPECT_EQ(reader.get("vocab_size", 0), 2) << key;
    EXPECT_FALSE(reader.has("sliding_window")) << key;  // null there, whatever the top says
  }
  const Json deep = json(R"({"thinker_config": {"hidden_size": 1, "text_config": {"hidden_size": 64}}})");
  EXPECT_EQ(ConfigReader(deep, "config.json").get("hidden_size", 0), 64);
  const Json no_object = json(R"({"text_config": 5, "hidden_size": 1})");
  EXPECT_EQ(ConfigReader(no_object, "config.json").get("hidden_size", 0), 1);
}

TEST(ConfigReader, FindsTheFirstOfSeveralKeys) {
  const Json config = json(R"({"num_local_experts": 8, "n_routed_experts": 64, "num_experts": null})");
  const ConfigReader reader(config, "config.json");
  const Json* found = reader.find_any({"num_experts", "num_local_experts", "n_routed_experts"});
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, Json(8));
  EXPECT_EQ(reader.find_any({"a", "b"}), nullptr);
}

TEST(ConfigReader, Architecture) {
  const auto architecture = [](std::string_view text) {
    const Json config = json(text);
    return ConfigReader(config, "config.json").architecture();
  };
  EXPECT_EQ(architecture(R"({"architectures": ["LlamaForCausalLM", "x"]})"), "LlamaForCausalLM");
  EXPECT_EQ(architecture(
                R"({"architectures": ["VlmModel"], "text_config": {"architectures": ["LlamaForCausalLM"]}})"),
            "VlmModel");
  EXPECT_EQ(architecture(R"({"auto_map": {"AutoModelForCausalLM": "modeling_qwen.QWenLMHeadModel"}})"),
            "QWenLMHeadModel");
  EXPECT_EQ(architecture(R"({"architectures": [], "auto_map": {"AutoModelForCausalLM": "Plain"}})"), "Plain");
  EXPECT_EQ(architecture(R"({"architectures": null})"), "");
  EXPECT_EQ(architecture("{}"), "");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { architecture(R"({"architectures": "Llama"})"); }),
                  "\"architectures\" is a string (\"Llama\"), expected an array of strings");
  EXPECT_CONTAINS(error_of(ErrorCode::kInvalidData, [&] { architecture(R"({"architectures": [1]})"); }),
                  "architectures[0]");
}

TEST(TokenIds, OneOrManyOrNone) {
  const Json config =
      json(R"({"one": 2, "many": [128001, 128009], "none": null, "off": -1, "real": 2.0, "empty": []})");
  const auto ids = [&](const char* key) { return token_ids_from(config, key, "config.json"); };
  EXPECT_EQ(ids("one"), std::vector<int>({2}));
  EXPECT_EQ(ids("many"), std::vector<int>({128001, 128009}));
  EXPECT_EQ(ids("real"), std::vector<int>({2}));
  for (const char* key : {"none", "off", "empty", "absent"}) EXPECT_TRUE(ids(key).empty()) << key;
}

TEST(TokenIds, RefusesWhatIsNoId) {
  for (const char* value : {"\"2\"", "1.5", "-2", "4294967296", "[1, \"x\"]", "[[1]]", "{}", "true"}) {
    const Json config = json(cat("{\"eos_token_id\": ", value, "}"));
    const std::string message =
        error_of(ErrorCode::kInvalidData, [&] { token_ids_from(config, "eos_token_id", "config.json"); });
    EXPECT_CONTAINS(message, "config.json: key \"eos_token_id\"");
    EXPECT_CONTAINS(message, "expected a token id");
  }
}

}  // namespace
}  // namespace lmdeploy
