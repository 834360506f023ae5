#include "lmdeploy/quant/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../models/backends.h"
#include "../models/family_configs.h"
#include "../models/random_family.h"
#include "../models/random_llama.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/models/model.h"
#include "lmdeploy/models/model_plan.h"
#include "lmdeploy/models/step_runner.h"

namespace lmdeploy::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTokens = 27;

/// The same checkpoint with all tensors in `dtype`.
MemoryCheckpoint in_dtype(const MemoryCheckpoint& source, DType dtype) {
  MemoryCheckpoint out;
  out.mutable_config() = source.config().as_object();
  out.mutable_config()["torch_dtype"] = dtype == DType::kBF16 ? "bfloat16" : "float16";
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const ConstTensorView from = source.tensor(i);
    Tensor to(dtype, from.shape());
    for (int64_t r = 0; r < from.rows(); ++r)
      for (int64_t c = 0; c < from.cols(); ++c) to.view().set(r, c, from.at(r, c));
    out.add(source.tensors()[i].name, std::move(to));
  }
  return out;
}

class ConvertTest : public ::testing::Test {
 protected:
  std::string source() const { return (fs::path(folder_.path()) / "source").string(); }
  std::string workspace() const { return (fs::path(folder_.path()) / "workspace").string(); }
  std::string weights() const { return workspace() + "/triton_models/weights/"; }

  void save(const MemoryCheckpoint& checkpoint) const {
    fs::remove_all(source());
    fs::create_directory(source());
    checkpoint.save(source());
  }
  ConvertRequest request(int64_t tp = 1) const {
    ConvertRequest r;
    r.template_name = "llama2";
    r.model_path = source();
    r.dst_path = workspace();
    r.tp = tp;
    return r;
  }
  static Tensor logits(const std::string& path) {
    const std::unique_ptr<Checkpoint> checkpoint = open_checkpoint(path);
    const Kernels& kernels = backend(backend_names().back());
    const auto model =
        load_model(*checkpoint, kernels, {.max_step_tokens = kTokens, .max_logit_rows = kTokens});
    const std::vector<int> ids = random_ids(3, kTokens, model->spec().vocab_size);
    return all_logits(*model, kernels, ids, {ids.size()});
  }
  void expect_same_logits() const {
    const Tensor got = logits(workspace()), want = logits(source());
    ASSERT_EQ(got.shape(), want.shape());
    EXPECT_TRUE(std::ranges::equal(got.span<std::byte>(), want.span<std::byte>()));
  }
  // `share`: of the largest logit.
  void expect_near_logits(double share) const {
    const Tensor got = logits(workspace()), want = logits(source());
    ASSERT_EQ(got.shape(), want.shape());
    double largest = 0;
    for (const float w : want.span<float>()) largest = std::max<double>(largest, std::abs(w));
    for (size_t i = 0; i < want.span<float>().size(); ++i)
      ASSERT_NEAR(got.span<float>()[i], want.span<float>()[i], share * largest) << i;
  }
  void truncate(const std::string& name) const {
    fs::resize_file(weights() + name, fs::file_size(weights() + name) - 2);
  }

  TempFolder folder_;
};

LlamaShape even_heads() {
  LlamaShape shape;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.hidden = 64;
  return shape;
}

// Sixteen-bit checkpoints keep every bit, whichever layout they need.
TEST_F(ConvertTest, EveryArchitecture) {
  int converted = 0;
  for (const std::string& architecture : drawn_architectures()) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      Draw draw(seed);
      const MemoryCheckpoint checkpoint =
          in_dtype(make_random_family(family_config(architecture, draw), seed),
                   seed == 1 ? DType::kF16 : DType::kBF16);
      SCOPED_TRACE(architecture + " " + to_json_text(checkpoint.config()));
      save(checkpoint);
      const ConvertResult result = convert_model(request());
      const DecoderSpec spec = plan_model(*open_checkpoint(source())).spec;
      converted += result.own_layout_reason.empty();
      if (spec.unit_head_rows || spec.rope.interleaved)
        expect_near_logits(
            0x1p-8);  // normalised rows are rounded to 16 bits; q and k are summed in another order
      else
        expect_same_logits();
    }
  }
  EXPECT_GE(converted, 8);
}

TEST_F(ConvertTest, Ranks) {
  LlamaShape shape = even_heads();
  shape.attention_bias = true;
  shape.dtype = DType::kF16;
  save(make_random_llama(shape, 5));
  for (const int64_t tp : {1, 2}) {
    SCOPED_TRACE(tp);
    EXPECT_EQ(convert_model(request(tp)).own_layout_reason, "");
    EXPECT_EQ(fs::exists(weights() + "layers.0.attention.w_qkv.1.bias"), tp == 2);
    expect_same_logits();
  }
  expect_error(ErrorCode::kInvalidArgument, {"--tp 4", "key-value heads", "2"},
               [&] { convert_model(request(4)); });
  expect_error(ErrorCode::kInvalidArgument, {"--tp is 3", "power of two"},
               [&] { convert_model(request(3)); });
}

// A config that says more ranks than the files have: they were made for one.
TEST_F(ConvertTest, FilesOfOneRankServeAll) {
  LlamaShape shape = even_heads();
  shape.dtype = DType::kF16;
  save(make_random_llama(shape, 5));
  convert_model(request(1));
  std::string text = read_file(weights() + "config.ini");
  text.replace(text.find("tensor_para_size = 1"), 20, "tensor_para_size = 2");
  std::ofstream(weights() + "config.ini") << text;
  expect_same_logits();
}

TEST_F(ConvertTest, WideNumbersAreRounded) {
  save(make_random_llama(even_heads(), 7));  // f32
  convert_model(request());
  expect_near_logits(0x1p-7);
  MemoryCheckpoint large = make_random_llama(even_heads(), 7);
  const auto norm = std::ranges::find(large.tensors(), "model.norm.weight", &TensorInfo::name);
  const ConstTensorView view = large.tensor(static_cast<size_t>(norm - large.tensors().begin()));
  const_cast<float*>(view.row<float>(0))[0] = 1e6f;
  save(large);
  expect_error(ErrorCode::kInvalidData, {"model.norm.weight", "1e+06", "--dtype bfloat16"},
               [&] { convert_model(request()); });
  ConvertRequest bf16 = request();
  bf16.dtype = "bfloat16";
  convert_model(bf16);
  expect_near_logits(0x1p-5);
}

TEST_F(ConvertTest, TheConfigSaysWhatTheModelIs) {
  LlamaShape shape = even_heads();
  shape.dtype = DType::kBF16;
  MemoryCheckpoint checkpoint = make_random_llama(shape, 5);
  checkpoint.mutable_config()["torch_dtype"] = "bfloat16";
  checkpoint.mutable_config()["max_position_embeddings"] = 512;
  checkpoint.mutable_config()["rope_scaling"] = JsonObject{{"type", "linear"}, {"factor", 2.0}};
  save(checkpoint);
  convert_model(request(2));
  const std::string text = read_file(weights() + "config.ini");
  for (const char* line :
       {"[llama]\nmodel_name = llama2\ntensor_para_size = 2\nhead_num = 4\nkv_head_num = 2\nvocab_size = "
        "67\n",
        "\nweight_type = bf16\n", "\nmax_position_embeddings = 512\n", "\nuse_dynamic_ntk = 0\n",
        "\nrope_scaling_factor = 2.0\n", "\nsession_len = 1032\n", "\nmax_batch_size = 64\n",
        "\nrope_theta = 10000.0\n", "\ncache_max_entry_count = 0.8\n", "\nsize_per_head = 16\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << " in:\n" << text;
  expect_same_logits();
}

TEST_F(ConvertTest, TheWholeFolder) {
  save(make_random_llama(even_heads(), 5));
  for (const char* name :
       {"tokenizer.model", "tokenizer_config.json", "tokenization_x.py", "chat_template.jinja"})
    std::ofstream(fs::path(source()) / name) << "{}";
  EXPECT_FALSE(convert_model(request(2)).replaced);
  const fs::path root(workspace());
  for (const char* name :
       {"triton_models/tokenizer/tokenizer.model", "triton_models/tokenizer/config.json",
        "triton_models/tokenizer/tokenization_x.py", "triton_models/tokenizer/chat_template.jinja",
        "triton_models/tokenizer/tokenizer.py", "triton_models/tokenizer/placeholder",
        "triton_models/interactive/1/placeholder", "triton_models/preprocessing/1/model.py",
        "model_repository/turbomind/config.pbtxt", "model_repository/turbomind/1/weights/config.ini",
        "model_repository/preprocessing/1/tokenizer/tokenizer.model",
        "model_repository/postprocessing/1/tokenizer/tokenizer.py"})
    EXPECT_TRUE(fs::exists(root / name)) << name;
  EXPECT_EQ(fs::read_symlink(root / "model_repository/turbomind"), "../triton_models/interactive");
  EXPECT_EQ(fs::read_symlink(root / "triton_models/interactive/1/weights"), "../../weights");
  const std::string script = read_file((root / "service_docker_up.sh").string());
  EXPECT_NE(script.find("\nTP=2\n"), std::string::npos);
  EXPECT_NE(fs::status(root / "service_docker_up.sh").permissions() & fs::perms::owner_exec, fs::perms::none);
  const std::string config = read_file((root / "triton_models/interactive/config.pbtxt").string());
  EXPECT_NE(config.find("key: \"tensor_para_size\"\n  value: {\n    string_value: \"2\""), std::string::npos);
  EXPECT_NE(config.find("key: \"model_name\"\n  value: {\n    string_value: \"llama2\""), std::string::npos);
  for (const char* path :
       {"", "/triton_models", "/triton_models/weights/", "/model_repository/turbomind/1/weights"})
    EXPECT_FALSE(open_checkpoint(workspace() + path)->settings_path().empty()) << path;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST_F(ConvertTest, OnlyAnOldWorkspaceIsReplaced) {
  save(make_random_llama(even_heads(), 5));
  fs::create_directory(workspace());
  EXPECT_TRUE(convert_model(request()).replaced);  // it was empty
  EXPECT_TRUE(convert_model(request()).replaced);
  EXPECT_EQ(names_in(folder_.path()), (std::vector<std::string>{"source", "workspace"}));

  const auto refuse = [&](const std::string& dst, const std::string& why) {
    ConvertRequest r = request();
    r.dst_path = dst;
    expect_error(ErrorCode::kInvalidArgument, {dst, why, "--dst-path"}, [&] { convert_model(r); });
  };
  const std::string other = folder_.path() + "/other";
  fs::create_directory(other);
  std::ofstream(other + "/thesis.txt") << "years of work";
  refuse(other, "neither empty nor a converted workspace");
  refuse(other + "/thesis.txt", "no folder");
  refuse(source(), "holds what is to be converted");
  refuse(folder_.path(), "holds what is to be converted");
  fs::create_directory_symlink(other, folder_.path() + "/link");
  refuse(folder_.path() + "/link", "no folder");
  EXPECT_TRUE(fs::exists(other + "/thesis.txt"));
  EXPECT_TRUE(fs::exists(source() + "/config.json"));
  ConvertRequest again = request();
  again.model_path = workspace();
  again.dst_path = folder_.path() + "/second";
  expect_error(ErrorCode::kInvalidArgument, {"converted workspace already"}, [&] { convert_model(again); });
}

TEST_F(ConvertTest, AnInterruptedConversionLeavesNothing) {
  save(make_random_llama(even_heads(), 5));
  convert_model(request());
  const std::string before = read_file(weights() + "layers.1.feed_forward.w2.0.weight");
  ConvertRequest stopped = request(2);
  stopped.progress = [](int64_t done, int64_t total) {
    if (2 * done > total) throw Error(ErrorCode::kClosed, "stopped");
  };
  expect_error(ErrorCode::kClosed, {"stopped"}, [&] { convert_model(stopped); });
  EXPECT_EQ(names_in(folder_.path()), (std::vector<std::string>{"source", "workspace"}));
  EXPECT_EQ(read_file(weights() + "layers.1.feed_forward.w2.0.weight"), before);
}

TEST_F(ConvertTest, BrokenFilesAreNamed) {
  save(make_random_llama(even_heads(), 5));
  const auto broken = [&](ErrorCode code, const std::vector<std::string>& parts, const auto& damage) {
    convert_model(request(2));
    damage();
    expect_error(code, parts, [&] { open_checkpoint(workspace()); });
  };
  broken(ErrorCode::kInvalidData, {"layers.1.attention.wo.1.weight", "4094 bytes", "expected 4096"},
         [&] { truncate("layers.1.attention.wo.1.weight"); });
  broken(ErrorCode::kInvalidData, {"tok_embeddings.weight", "expected 8704"},
         [&] { truncate("tok_embeddings.weight"); });
  broken(ErrorCode::kNotFound, {"norm.weight"}, [&] { fs::remove(weights() + "norm.weight"); });
  broken(ErrorCode::kNotFound, {"layers.0.feed_forward.w1.0.weight"},
         [&] { fs::remove(weights() + "layers.0.feed_forward.w1.0.weight"); });
  broken(ErrorCode::kInvalidData, {"layers.0.feed_forward.w1.0.weight", "expected"},
         [&] { fs::remove(weights() + "layers.0.feed_forward.w1.1.weight"); });
  broken(ErrorCode::kInvalidData, {"layers.9.ffn_norm.weight", "none of the model"},
         [&] { std::ofstream(weights() + "layers.9.ffn_norm.weight") << "xx"; });
  broken(ErrorCode::kUnsupported, {"w1.lora_a.0.weight", "adapters", "original checkpoint"},
         [&] { std::ofstream(weights() + "layers.0.feed_forward.w1.lora_a.0.weight") << "xx"; });
  broken(ErrorCode::kNotFound, {"neither config.ini nor config.yaml"},
         [&] { fs::remove(weights() + "config.ini"); });
  broken(ErrorCode::kInvalidData, {"both config.ini and config.yaml"},
         [&] { std::ofstream(weights() + "config.yaml") << "a: 1"; });
}

TEST_F(ConvertTest, OwnLayoutKeepsTheFilesOfAnyForm) {
  LlamaShape shape = even_heads();
  const MemoryCheckpoint llama = make_random_llama(shape, 5);
  fs::create_directory(source());
  write_llama_gguf(source() + "/tiny.gguf", llama);
  ConvertRequest gguf = request(2);
  gguf.model_path += "/tiny.gguf";
  EXPECT_NE(convert_model(gguf).own_layout_reason.find("gguf"), std::string::npos);
  EXPECT_TRUE(fs::exists(weights() + "tiny.gguf"));
  EXPECT_EQ(fs::read_symlink(workspace() + "/triton_models/tokenizer/tiny.gguf"), "../weights/tiny.gguf");
  expect_same_logits();
}

TEST_F(ConvertTest, RequestsThatDoNotFit) {
  save(make_random_llama(even_heads(), 5));
  const auto refused = [&](ErrorCode code, const std::vector<std::string>& parts, const auto& change) {
    ConvertRequest r = request();
    change(r);
    expect_error(code, parts, [&] { convert_model(r); });
  };
  refused(ErrorCode::kInvalidArgument, {"awq", "--group-size", "128"},
          [](ConvertRequest& r) { r.model_format = "awq"; });
  refused(ErrorCode::kInvalidArgument, {"folder says hf", "option says awq"}, [](ConvertRequest& r) {
    r.model_format = "awq";
    r.group_size = 128;
  });
  refused(ErrorCode::kNotFound, {"--tokenizer-path", "/nowhere"},
          [](ConvertRequest& r) { r.tokenizer_path = "/nowhere"; });
  refused(ErrorCode::kNotFound, {"/nowhere"}, [](ConvertRequest& r) { r.model_path = "/nowhere"; });
  EXPECT_FALSE(fs::exists(workspace()));
}

}  // namespace
}  // namespace lmdeploy::testing
