// open_checkpoint(): every layout of folder and file, what is refused, and what the views point to.
#include "lmdeploy/formats/checkpoint.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmdeploy/formats/checkpoint_kinds.h"
#include "lmdeploy/formats/gguf.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/formats/test_support.h"
#include "lmdeploy/formats/torch/torch_test_support.h"

namespace lmdeploy {
namespace {

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4})";
constexpr const char* kIndexFile = "model.safetensors.index.json";

class CheckpointTest : public testing::Test {
 protected:
  // A file with F32 tensors [2, 3] of these names; tensor k of all written has pattern k.
  void write_weights(std::string_view file, const std::vector<std::string>& names) {
    std::vector<Tensor> tensors;
    std::vector<NamedTensor> named;
    for (const std::string& name : names) {
      tensors.push_back(golden_tensor(DType::kF32, {2, 3}, num_written_++));
      named.push_back({name, tensors.back()});
    }
    write_safetensors(folder_.file(file), named);
  }
  void write_config() { folder_.write("config.json", kConfig); }
  std::string error(ErrorCode code, const std::string& path) {
    return error_of(code, [&] { open_checkpoint(path); });
  }
  std::string error(ErrorCode code) { return error(code, folder_.path()); }
  static std::vector<std::string> names(const Checkpoint& checkpoint) {
    std::vector<std::string> out;
    for (const TensorInfo& info : checkpoint.tensors()) out.push_back(info.name);
    return out;
  }

  TempFolder folder_;
  int num_written_ = 0;
};
using Names = std::vector<std::string>;

TEST_F(CheckpointTest, FolderWithOneFile) {
  write_config();
  folder_.write("generation_config.json", R"({"eos_token_id": [2, 3]})");
  write_weights("model.safetensors", {"a", "b"});
  write_weights("consolidated.safetensors", {"a", "b", "c"});  // a duplicate under other names: never read
  const auto checkpoint = open_checkpoint(folder_.path());
  EXPECT_EQ(checkpoint->path(), folder_.path());
  EXPECT_EQ(checkpoint->config_path(), folder_.file("config.json"));
  EXPECT_EQ(checkpoint->config(), parse_json(kConfig, "want"));
  EXPECT_EQ(checkpoint->generation_config(), parse_json(R"({"eos_token_id": [2, 3]})", "want"));
  ASSERT_EQ(names(*checkpoint), Names({"a", "b"}));
  EXPECT_EQ(checkpoint->tensors()[1].file, folder_.file("model.safetensors"));
  EXPECT_EQ(checkpoint->tensors()[1].stored_name, "b");
  for (const int i : {0, 1}) {
    const ConstTensorView view = checkpoint->tensor(static_cast<size_t>(i));
    EXPECT_EQ(view.shape(), Shape({2, 3}));
    EXPECT_EQ(bytes_of(view), bytes_of(golden_tensor(DType::kF32, {2, 3}, i)));
  }
}

TEST_F(CheckpointTest, OneFileNamedDirectly) {
  write_config();
  write_weights("weights.safetensors", {"a"});
  const auto checkpoint = open_checkpoint(folder_.file("weights.safetensors"));
  EXPECT_EQ(names(*checkpoint), Names({"a"}));
  EXPECT_EQ(checkpoint->config_path(), folder_.file("config.json"));
  EXPECT_EQ(checkpoint->generation_config(), Json(JsonObject()));
}

TEST_F(CheckpointTest, IndexAndShards) {
  write_config();
  write_weights("model-00001-of-00002.safetensors", {"a", "b"});
  write_weights("model-00002-of-00002.safetensors", {"c", "a", "unlisted"});
  write_weights("model.safetensors", {"whole"});  // the index is preferred
  folder_.write(kIndexFile, R"({"metadata": {"total_size": 1}, "weight_map": {
    "c": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors"}})");
  const auto checkpoint = open_checkpoint(folder_.path());
  // "a" comes from the file that the index names; a tensor that the index forgot is still there.
  EXPECT_EQ(names(*checkpoint), Names({"a", "b", "c", "unlisted"}));
  EXPECT_EQ(checkpoint->tensors()[0].file, folder_.file("model-00001-of-00002.safetensors"));
  EXPECT_EQ(checkpoint->tensors()[2].file, folder_.file("model-00002-of-00002.safetensors"));
}

TEST_F(CheckpointTest, StaleIndexBesideAWholeFile) {
  write_config();
  write_weights("model.safetensors", {"whole"});
  folder_.write(kIndexFile, R"({"weight_map": {"a": "model-00001-of-00002.safetensors"}})");
  EXPECT_EQ(names(*open_checkpoint(folder_.path())), Names({"whole"}));
}

TEST_F(CheckpointTest, IncompleteShards) {
  write_config();
  write_weights("one.safetensors", {"a"});
  folder_.write(kIndexFile, R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  EXPECT_CONTAINS(error(ErrorCode::kNotFound), "lists \"two.safetensors\", which is not in the folder");
  folder_.write(kIndexFile, R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}})");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"b\" should be in one.safetensors");
  write_weights("two.safetensors", {"x"});
  write_weights("three.safetensors", {"x"});
  folder_.write(kIndexFile, R"({"weight_map": {"a": "one.safetensors", "x": "two.safetensors",
                                               "y": "three.safetensors"}})");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"y\" should be in three.safetensors");
}

TEST_F(CheckpointTest, SameTensorInTwoShardsThatTheIndexDoesNotDecide) {
  write_config();
  write_weights("one.safetensors", {"a", "x"});
  write_weights("two.safetensors", {"b", "x"});
  folder_.write(kIndexFile, R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  const std::string message = error(ErrorCode::kInvalidData);
  EXPECT_CONTAINS(message, "tensor \"x\" is in");
  EXPECT_CONTAINS(message, "one.safetensors");
  EXPECT_CONTAINS(message, "two.safetensors");
}

TEST_F(CheckpointTest, HostileIndexes) {
  write_config();
  const auto with_index = [&](std::string_view text) {
    folder_.write(kIndexFile, text);
    return error(ErrorCode::kInvalidData);
  };
  for (const char* text : {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})"})
    EXPECT_CONTAINS(with_index(text), "\"weight_map\"");
  for (const char* file :
       {"\"../secret.safetensors\"", "\"/etc/passwd\"", "\"..\"", "\".\"", "\"\"", "\"a\\u0000b\"", "1"})
    EXPECT_CONTAINS(with_index(cat(R"({"weight_map": {"a": )", file, "}}")), "expected the name of a file");
  EXPECT_CONTAINS(with_index(R"({"weight_map": {"a": "x", "a": "y"}})"), "key \"a\" appears twice");
  EXPECT_CONTAINS(with_index("{"), kIndexFile);
}

TEST_F(CheckpointTest, BadConfigs) {
  write_weights("model.safetensors", {"a"});
  EXPECT_CONTAINS(error(ErrorCode::kNotFound), "no config.json");
  folder_.write("config.json", "[1]");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "config.json: the text is an array, expected an object");
  folder_.write("config.json", "{");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "not valid JSON");
  write_config();
  folder_.write("generation_config.json", "2");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "generation_config.json: the text is an integer");
}

TEST_F(CheckpointTest, SaysWhatAFolderWithoutWeightsHas) {
  EXPECT_CONTAINS(error(ErrorCode::kNotFound, folder_.file("absent")), "no such file or folder");
  write_config();
  EXPECT_CONTAINS(
      error(ErrorCode::kNotFound),
      "no weights; looked for model.safetensors.index.json, model.safetensors, pytorch_model.bin");
  write_weights("adapter.safetensors", {"a"});
  EXPECT_CONTAINS(error(ErrorCode::kNotFound), "found adapter.safetensors, but neither model.safetensors");
  write_weights("consolidated.safetensors", {"a"});
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported),
                  "consolidated.safetensors has tensor names that are not the hub's");
  folder_.write("weights.onnx", "");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported, folder_.file("weights.onnx")),
                  "expected a folder or a .gguf, .safetensors, .bin");
}

// ---- files of torch.save

class TorchCheckpointTest : public CheckpointTest {
 protected:
  void write_torch(std::string_view file, const std::vector<std::string>& names) {
    std::vector<Tensor> tensors;
    std::vector<NamedTensor> named;
    for (const std::string& name : names) {
      tensors.push_back(golden_tensor(DType::kF32, {2, 3}, num_written_++));
      named.push_back({name, tensors.back()});
    }
    folder_.write(file, torch_file(named));
  }
};

TEST_F(TorchCheckpointTest, OneFile) {
  write_config();
  write_torch("pytorch_model.bin", {"a", "b"});
  write_torch("training_args.bin", {"c"});
  folder_.write("notes.gguf", "never read: the hub's form comes first");
  for (const std::string& path : {folder_.path(), folder_.file("pytorch_model.bin")}) {
    const auto checkpoint = open_checkpoint(path, {"hf"});
    ASSERT_EQ(names(*checkpoint), Names({"a", "b"}));
    EXPECT_EQ(checkpoint->tensors()[1].file, folder_.file("pytorch_model.bin"));
    EXPECT_EQ(bytes_of(checkpoint->tensor(1)), bytes_of(golden_tensor(DType::kF32, {2, 3}, 1)));
    checkpoint->drop(1);
    EXPECT_EQ(bytes_of(checkpoint->tensor(1)), bytes_of(golden_tensor(DType::kF32, {2, 3}, 1)));
  }
  write_weights("model.safetensors", {"s"});
  EXPECT_EQ(names(*open_checkpoint(folder_.path())), Names({"s"}));  // preferred
}

TEST_F(TorchCheckpointTest, IndexAndShards) {
  write_config();
  write_torch("pytorch_model-00001-of-00002.bin", {"a"});
  write_torch("pytorch_model-00002-of-00002.bin", {"b", "a"});
  folder_.write("pytorch_model.bin.index.json", R"({"weight_map": {"a": "pytorch_model-00001-of-00002.bin",
                                                                   "b": "pytorch_model-00002-of-00002.bin"}})");
  EXPECT_EQ(names(*open_checkpoint(folder_.path())), Names({"a", "b"}));
  EXPECT_CONTAINS(error(ErrorCode::kInvalidArgument, folder_.file("pytorch_model-00001-of-00002.bin")),
                  "one of 2 shards; name the folder");
  std::filesystem::remove(folder_.file("pytorch_model-00002-of-00002.bin"));
  EXPECT_CONTAINS(error(ErrorCode::kNotFound), "lists \"pytorch_model-00002-of-00002.bin\"");
}

TEST_F(TorchCheckpointTest, SeveralFilesWithoutAnIndex) {
  write_config();
  write_torch("part-00001-of-00002.bin", {"a"});
  write_torch("optimizer.bin", {"x"});
  EXPECT_CONTAINS(error(ErrorCode::kNotFound), "not part-00002-of-00002.bin");
  write_torch("part-00002-of-00002.bin", {"b"});
  EXPECT_EQ(names(*open_checkpoint(folder_.path())), Names({"a", "b"}));
  write_torch("more.bin", {"b"});
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"b\" is in");
}

TEST_F(TorchCheckpointTest, StridedTensorsAreCopied) {
  write_config();
  std::filesystem::copy_file(golden_path("torch_views.bin"), folder_.file("pytorch_model.bin"));
  const auto checkpoint = open_checkpoint(folder_.path());
  const Tensor storage = golden_tensor(DType::kF32, {4, 6}, 3);
  for (size_t i = 0; i < checkpoint->tensors().size(); ++i) {
    if (checkpoint->tensors()[i].name != "transposed") continue;
    const ConstTensorView view = checkpoint->tensor(i);
    EXPECT_EQ(view.shape(), Shape({6, 4}));
    EXPECT_TRUE(view.contiguous());
    for (int64_t r = 0; r < 6; ++r)
      for (int64_t c = 0; c < 4; ++c)
        EXPECT_EQ(std::memcmp(view.row<float>(r) + c, storage.view().row<float>(c) + r, 4), 0) << r << c;
    return;
  }
  ADD_FAILURE() << "no tensor \"transposed\"";
}

// ---- model_format

TEST_F(TorchCheckpointTest, FormatOptionMustAgree) {
  const auto with = [&](const std::string& format) {
    return error_of(ErrorCode::kInvalidArgument, [&] { open_checkpoint(folder_.path(), {format}); });
  };
  write_config();
  write_weights("model.safetensors", {"a"});
  EXPECT_CONTAINS(with("awq"), "folder says hf, option says awq");
  EXPECT_CONTAINS(with("gguf"), "folder says hf, option says gguf");
  EXPECT_CONTAINS(with("llama"), "folder says hf, option says llama");
  EXPECT_CONTAINS(with("int8"), "model_format is \"int8\", expected one of hf, llama, gguf, awq, gptq");
  std::filesystem::remove(folder_.file("model.safetensors"));
  folder_.write("m.gguf", "not read");
  EXPECT_CONTAINS(with("hf"), "folder says gguf, option says hf");
}

TEST_F(CheckpointTest, OneShardNamedAlone) {
  write_config();
  write_weights("model-00001-of-00002.safetensors", {"a"});
  EXPECT_CONTAINS(error(ErrorCode::kInvalidArgument, folder_.file("model-00001-of-00002.safetensors")),
                  "one of 2 shards; name the folder");
}

// A header of odd length puts the data at an odd address: the view is a copy then.
TEST_F(CheckpointTest, MisalignedTensorsAreCopied) {
  write_config();
  std::string header = R"({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}})";
  while (header.size() % 4 != 1) header += ' ';
  const Tensor first = golden_tensor(DType::kF32, {2, 2}, 1), second = golden_tensor(DType::kF32, {2, 2}, 2);
  const std::string path =
      folder_.write("model.safetensors", raw<uint64_t>(header.size()) + header + bytes_of(first));
  const auto checkpoint = open_checkpoint(folder_.path());
  const ConstTensorView view = checkpoint->tensor(0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data()) % 4, 0u);
  EXPECT_EQ(bytes_of(view), bytes_of(first));
  EXPECT_EQ(checkpoint->tensor(0).data(), view.data());
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);  // in place: the mapping sees it
  file.seekp(static_cast<std::streamoff>(8 + header.size()));
  file << bytes_of(second) << std::flush;
  EXPECT_EQ(bytes_of(checkpoint->tensor(0)), bytes_of(first));
  checkpoint->drop(0);
  EXPECT_EQ(bytes_of(checkpoint->tensor(0)), bytes_of(second));
}

TEST_F(CheckpointTest, DroppedTensorsCanStillBeRead) {
  write_config();
  std::vector<float> values(1 << 16, 1.5f);
  const ConstTensorView big(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {256, 256});
  write_safetensors(folder_.file("model.safetensors"), std::vector<NamedTensor>{{"a", big}});
  const auto checkpoint = open_checkpoint(folder_.path());
  EXPECT_EQ(checkpoint->tensor(0).at(255, 255), 1.5);
  checkpoint->drop(0);
  EXPECT_EQ(checkpoint->tensor(0).at(255, 255), 1.5);
}

// Metadata of a Llama small enough to write here.
std::vector<GgufItem> llama_metadata() {
  return {{"general.architecture", GgufType::kString, "llama"},
          {"llama.context_length", GgufType::kU32, int64_t{64}},
          {"llama.embedding_length", GgufType::kU32, int64_t{3}},
          {"llama.block_count", GgufType::kU32, int64_t{1}},
          {"llama.feed_forward_length", GgufType::kU32, int64_t{4}},
          {"llama.attention.head_count", GgufType::kU32, int64_t{1}},
          {"llama.attention.layer_norm_rms_epsilon", GgufType::kF32, 1e-5}};
}

class GgufCheckpointTest : public CheckpointTest {
 protected:
  void write(std::string_view file, std::vector<GgufItem> metadata,
             const std::vector<std::string>& tensor_names) {
    std::vector<Tensor> tensors;
    std::vector<GgufNamedTensor> named;
    for (const std::string& name : tensor_names) {
      tensors.push_back(golden_tensor(DType::kF32, {2, 3}, num_written_++));
      named.push_back({name, tensors.back()});
    }
    write_gguf(folder_.file(file), metadata, named);
  }
  void write_part(int number, int count, const std::vector<std::string>& tensor_names) {
    std::vector<GgufItem> metadata = number == 0 ? llama_metadata() : std::vector<GgufItem>();
    metadata.push_back({"split.no", GgufType::kU16, int64_t{number}});
    metadata.push_back({"split.count", GgufType::kU16, int64_t{count}});
    write(cat("m-0000", number + 1, "-of-0000", count, ".gguf"), metadata, tensor_names);
  }
};

TEST_F(GgufCheckpointTest, FileOrFolder) {
  write("m.gguf", llama_metadata(), {"token_embd.weight", "blk.0.attn_q.weight", "something.else"});
  for (const std::string& path : {folder_.file("m.gguf"), folder_.path()}) {
    const auto checkpoint = open_checkpoint(path);
    EXPECT_EQ(checkpoint->path(), path);
    EXPECT_EQ(checkpoint->config_path(), folder_.file("m.gguf"));
    EXPECT_EQ(checkpoint->generation_config(), Json(JsonObject()));
    EXPECT_EQ(names(*checkpoint), Names({"model.embed_tokens.weight",
                                         "model.layers.0.self_attn.q_proj.weight", "something.else"}));
    EXPECT_EQ(checkpoint->tensors()[1].stored_name, "blk.0.attn_q.weight");
    EXPECT_EQ(bytes_of(checkpoint->tensor(1)), bytes_of(golden_tensor(DType::kF32, {2, 3}, 1)));
    EXPECT_EQ(ConfigReader(checkpoint->config(), "c").architecture(), "LlamaForCausalLM");
    EXPECT_EQ(ConfigReader(checkpoint->config(), "c").get("vocab_size", 0), 2);
  }
}

TEST_F(GgufCheckpointTest, FolderPreferences) {
  write("a.gguf", llama_metadata(), {"token_embd.weight"});
  write("b.gguf", llama_metadata(), {"token_embd.weight"});
  EXPECT_CONTAINS(error(ErrorCode::kInvalidArgument),
                  "several GGUF files (a.gguf, b.gguf); name one of them");
  write_config();
  write_weights("model.safetensors", {"w"});
  EXPECT_EQ(names(*open_checkpoint(folder_.path())), Names({"w"}));
}

TEST_F(GgufCheckpointTest, AllPartsOfASplitFile) {
  write_part(0, 3, {"token_embd.weight"});
  write_part(1, 3, {"blk.0.attn_q.weight"});
  write_part(2, 3, {"output.weight"});
  for (const std::string& path :
       {folder_.path(), folder_.file("m-00001-of-00003.gguf"), folder_.file("m-00003-of-00003.gguf")}) {
    const auto checkpoint = open_checkpoint(path);
    EXPECT_EQ(names(*checkpoint), Names({"model.embed_tokens.weight",
                                         "model.layers.0.self_attn.q_proj.weight", "lm_head.weight"}));
    EXPECT_EQ(checkpoint->tensors()[2].file, folder_.file("m-00003-of-00003.gguf"));
    EXPECT_EQ(bytes_of(checkpoint->tensor(2)), bytes_of(golden_tensor(DType::kF32, {2, 3}, 2)));
    EXPECT_FALSE(ConfigReader(checkpoint->config(), "c").get("tie_word_embeddings", true));  // said by part 3
  }
}

TEST_F(GgufCheckpointTest, BrokenSplitFiles) {
  write_part(0, 2, {"token_embd.weight"});
  EXPECT_CONTAINS(error(ErrorCode::kNotFound), "part 2 of 2");
  write_part(1, 2, {"token_embd.weight"});
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "tensor \"model.embed_tokens.weight\" is in");
  std::filesystem::copy_file(folder_.file("m-00001-of-00002.gguf"), folder_.file("m-00002-of-00002.gguf"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData), "metadata say part 1 of 2");
  std::filesystem::rename(folder_.file("m-00001-of-00002.gguf"), folder_.file("renamed.gguf"));
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData, folder_.file("renamed.gguf")), "metadata say part 1 of 2");
}

TEST_F(GgufCheckpointTest, TwoNamesForOneTensor) {
  write("m.gguf", llama_metadata(), {"output_norm.weight", "model.norm.weight"});
  const std::string message = error(ErrorCode::kInvalidData);
  EXPECT_CONTAINS(message, "(as \"output_norm.weight\")");
  EXPECT_CONTAINS(message, "(as \"model.norm.weight\")");
}

TEST(PartName, ParsesOnlyTheExactPattern) {
  const auto part = parse_part_name("model-x-00002-of-00010.gguf", ".gguf");
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->stem, "model-x");
  EXPECT_EQ(part->number, 2);
  EXPECT_EQ(part->count, 10);
  EXPECT_EQ(part_file_name(*part, 10, ".gguf"), "model-x-00010-of-00010.gguf");
  for (const char* name :
       {"model.gguf", "m-00003-of-00002.gguf", "m-00000-of-00002.gguf", "m-0001-of-00002.gguf",
        "m-00001-of-00002.bin", "m-00001-of--0002.gguf", "m-0000a-of-00002.gguf", ".gguf",
        "m_00001-of-00002.gguf", "m-00001_of-00002.gguf"})
    EXPECT_FALSE(parse_part_name(name, ".gguf").has_value()) << name;
}

// The model fixtures of every family, where they are.
TEST(SharedModels, AllOpen) {
  const std::filesystem::path models = LMDEPLOY_SOURCE_DIR "/../shared/data/models";
  if (!std::filesystem::exists(models)) GTEST_SKIP() << "no ../shared/data/models";
  int num_models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    if (!entry.is_directory()) continue;
    const auto checkpoint = open_checkpoint(entry.path().string());
    EXPECT_GT(checkpoint->tensors().size(), 10u) << entry.path();
    EXPECT_NE(ConfigReader(checkpoint->config(), checkpoint->config_path()).architecture(), "")
        << entry.path();
    EXPECT_EQ(token_ids_from(checkpoint->generation_config(), "eos_token_id", "g"), std::vector<int>({2}));
    for (size_t i = 0; i < checkpoint->tensors().size(); ++i)
      EXPECT_EQ(checkpoint->tensor(i).dtype(), DType::kBF16) << checkpoint->tensors()[i].name;
    ++num_models;
  }
  EXPECT_GT(num_models, 40);
}

}  // namespace
}  // namespace lmdeploy
