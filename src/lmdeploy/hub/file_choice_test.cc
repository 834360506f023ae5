#include "lmdeploy/hub/file_choice.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

using Names = std::vector<std::string>;

Weights choose(const Names& files, const std::string& index = "", const std::string& file = "") {
  return weight_files(files, {"org", "name", file}, [&](const std::string&) { return index; });
}

TEST(FileChoice, SmallFilesAreThoseThatAreRead) {
  EXPECT_EQ(
      small_files({"README.md", "config.json", "tokenizer.model", "qwen.tiktoken", "modeling_x.py", "x.pkl",
                   "original/tokenizer.model", "generation_config.json", "model.safetensors.index.json",
                   "pytorch_model.bin.index.json", "chat_template.jinja", "logo.png"}),
      (Names{"config.json", "tokenizer.model", "qwen.tiktoken", "generation_config.json",
             "chat_template.jinja", "model.safetensors.index.json"}));
  EXPECT_EQ(small_files({"pytorch_model.bin.index.json"}), Names{"pytorch_model.bin.index.json"});
}

TEST(FileChoice, SafetensorsBeforeOthers) {
  const Names all = {"model.safetensors", "a.gguf", "pytorch_model.bin", "training_args.bin",
                     "flax_model.msgpack"};
  EXPECT_EQ(choose(all).files, Names{"model.safetensors"});
  EXPECT_EQ(choose({"a.gguf", "pytorch_model.bin"}).open, "a.gguf");
  EXPECT_EQ(choose({"pytorch_model.bin", "training_args.bin", "x.pt"}).files, Names{"pytorch_model.bin"});
  EXPECT_THROW(choose({"training_args.bin", "adapter_model.safetensors", "sub/model.safetensors"}), Error);
}

TEST(FileChoice, ShardsOfTheIndexOnly) {
  const std::string index =
      R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}})";
  const Names files = {"model.safetensors.index.json", "a.safetensors", "b.safetensors", "c.safetensors"};
  EXPECT_EQ(choose(files, index).files, (Names{"a.safetensors", "b.safetensors"}));
  EXPECT_EQ(choose({"model.safetensors.index.json", "model.safetensors"}, index).files,
            Names{"model.safetensors"});
  EXPECT_THROW(choose({"model.safetensors.index.json", "a.safetensors"}, index), Error);
  EXPECT_THROW(choose({"model.safetensors.index.json", "a.safetensors"}, R"({"weight_map": {}})"), Error);
}

TEST(FileChoice, GgufInPartsIsOneModel) {
  const Names parts = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};
  EXPECT_EQ(choose(parts).files, parts);
  EXPECT_EQ(choose(parts).open, parts[0]);
  EXPECT_EQ(choose(parts, "", parts[1]).open, parts[0]);
  EXPECT_THROW(choose({parts[0], parts[2]}), Error);
  EXPECT_THROW(choose({"m-00001-of-99999.gguf"}), Error);
  EXPECT_EQ(choose({"m-00001-of-0003.gguf"}).files, Names{"m-00001-of-0003.gguf"});  // not that form
}

TEST(FileChoice, SeveralGgufMustBeChosenFrom) {
  try {
    choose({"b.gguf", "sub/c.gguf", "a.gguf"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "model org/name: it has several .gguf files: a.gguf, b.gguf, sub/c.gguf; name one: "
                 "org/name/a.gguf");
  }
  EXPECT_EQ(choose({"b.gguf", "a.gguf"}, "", "b.gguf").files, Names{"b.gguf"});
  EXPECT_THROW(choose({"b.gguf"}, "", "c.gguf"), Error);
}

TEST(FileChoice, Tokenizers) {
  EXPECT_TRUE(has_tokenizer({"tokenizer.model"}));
  EXPECT_TRUE(has_tokenizer({"x.tiktoken"}));
  EXPECT_FALSE(has_tokenizer({"a.gguf", "original/tokenizer.model", "tokenizer_config.json"}));
}

}  // namespace
}  // namespace lmdeploy
