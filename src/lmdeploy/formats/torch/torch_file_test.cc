// torch.save files: what the reference layouts give, and what hostile ones get.
#include "lmdeploy/formats/torch/torch_file.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "lmdeploy/formats/tensor_bytes.h"
#include "lmdeploy/formats/test_support.h"
#include "lmdeploy/formats/torch/torch_test_support.h"

namespace lmdeploy {
namespace {

std::string elements(const TorchTensor& tensor) {
  if (tensor.strides.empty())
    return {reinterpret_cast<const char*>(tensor.stored.data()), tensor.stored.size()};
  std::string out(static_cast<size_t>(tensor.shape.numel() * block_bytes(tensor.dtype)), '\0');
  copy_strided(tensor.stored, tensor.dtype, tensor.shape, tensor.strides,
               reinterpret_cast<std::byte*>(out.data()));
  return out;
}

// ---- files of tests/data/formats/make_torch.py

struct Want {
  std::string name;
  DType dtype;
  Shape shape;
};
const std::vector<Want> kWant = {
    {"a.f32", DType::kF32, {2, 3}}, {"b.bf16", DType::kBF16, {3, 5}},   {"c.f16", DType::kF16, {7}},
    {"d.i64", DType::kI64, {3}},    {"e.u8", DType::kU8, {2, 3, 2, 1}}, {"f.bool", DType::kBool, {5}},
    {"g.f64", DType::kF64, {2}},    {"h.i32", DType::kI32, {3}},        {"i.i16", DType::kI16, {3}},
    {"j.i8", DType::kI8, {3}},      {"k.scalar", DType::kF32, {}},      {"l.empty", DType::kF32, {0, 4}}};

class TorchGolden : public testing::TestWithParam<std::string> {};

TEST_P(TorchGolden, EveryTensor) {
  const TorchFile file(golden_path(GetParam()));
  ASSERT_EQ(file.tensors().size(), kWant.size());
  for (size_t i = 0; i < kWant.size(); ++i) {
    const TorchTensor& got = file.tensors()[i];
    EXPECT_EQ(got.name, kWant[i].name);
    EXPECT_EQ(got.dtype, kWant[i].dtype) << got.name;
    EXPECT_EQ(got.shape, kWant[i].shape) << got.name;
    EXPECT_TRUE(got.strides.empty()) << got.name;
    EXPECT_EQ(elements(got), bytes_of(golden_tensor(got.dtype, got.shape, static_cast<int>(i)))) << got.name;
  }
}

TEST_P(TorchGolden, CutAnywhere) {
  const std::string bytes = read_file(golden_path(GetParam()));
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(parse_torch(as_bytes(bytes.substr(0, size)), "cut"), Error) << size;
}

INSTANTIATE_TEST_SUITE_P(Forms, TorchGolden,
                         testing::Values("torch_zip.bin", "torch_zip64.bin", "torch_legacy.bin"),
                         [](const auto& test) { return test.param.substr(6, test.param.find('.') - 6); });

class TorchViews : public testing::TestWithParam<std::string> {};

TEST_P(TorchViews, OfOneStorage) {
  const TorchFile file(golden_path(GetParam()));
  std::map<std::string, const TorchTensor*> tensors;
  for (const TorchTensor& tensor : file.tensors()) tensors[tensor.name] = &tensor;
  const std::string storage = bytes_of(golden_tensor(DType::kF32, {24}, 3));
  const auto pick = [&](std::initializer_list<size_t> indices) {
    std::string out;
    for (const size_t i : indices) out += storage.substr(4 * i, 4);
    return out;
  };
  EXPECT_EQ(elements(*tensors.at("whole")), storage);
  EXPECT_EQ(tensors.at("tied")->stored.data(), tensors.at("whole")->stored.data());
  EXPECT_EQ(elements(*tensors.at("rows")), storage.substr(24, 48));
  EXPECT_EQ(tensors.at("transposed")->shape, Shape({6, 4}));
  EXPECT_EQ(elements(*tensors.at("transposed")),
            pick({0, 6, 12, 18, 1, 7, 13, 19, 2, 8, 14, 20, 3, 9, 15, 21, 4, 10, 16, 22, 5, 11, 17, 23}));
  EXPECT_EQ(elements(*tensors.at("columns")), pick({1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}));
  EXPECT_EQ(elements(*tensors.at("parameter")), storage);
  EXPECT_EQ(elements(*tensors.at("v1")), storage);
  EXPECT_EQ(tensors.count("step") + tensors.count("rate") + tensors.count("names"), 0u);
  if (tensors.contains("fp8")) {
    EXPECT_EQ(tensors.at("fp8")->dtype, DType::kF8E4M3);
    EXPECT_EQ(elements(*tensors.at("fp8")), bytes_of(golden_tensor(DType::kU8, {6}, 4)));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TorchViews, testing::Values("torch_views.bin", "torch_views_legacy.bin"),
                         [](const auto& test) { return test.param.substr(6, test.param.find('.') - 6); });

// ---- pickles made here

std::string error_of_pickle(ErrorCode code, const std::string& pickle, const std::string& storage = "") {
  const std::string file = zip_of({{"archive/data.pkl", pickle}, {"archive/data/0", storage}});
  return error_of(code, [&] { parse_torch(as_bytes(file), "weights.bin"); });
}

TEST(TorchPickle, WhatWouldRunCodeIsRefusedByName) {
  const std::string id = pickle_text("id");
  const std::pair<std::string, std::string> cases[] = {
      {"cos\nsystem\n(" + id + "tR.", "\"os.system\""},
      {"cposix\nsystem\n(" + id + "tR.", "\"posix.system\""},
      {"cbuiltins\neval\n(" + id + "tR.", "\"builtins.eval\""},
      {"c__builtin__\neval\n(" + id + "tR.", "\"__builtin__.eval\""},
      {"cbuiltins\ngetattr\n(" + id + "tR.", "\"builtins.getattr\""},
      {"csubprocess\nPopen\n(" + id + "tR.", "\"subprocess.Popen\""},
      {"ctorch.hub\nload\n(" + id + "tR.", "\"torch.hub.load\""},
      {"ctorch.storage\n_load_from_bytes\n(" + id + "tR.", "\"torch.storage._load_from_bytes\""},
      {"cnumpy.core.multiarray\n_reconstruct\n(" + id + "tR.", "\"numpy.core.multiarray._reconstruct\""},
      {"ccollections\nOrderedDict.fromkeys\n(" + id + "tR.", "\"collections.OrderedDict.fromkeys\""},
      {"\x80\x04" + pickle_text("os") + pickle_text("system") + "\x93.", "\"os.system\""},
      {"}(" + id + "cos\nsystem\n(" + id + "tRu.", "\"os.system\""},       // deep inside
      {"ccollections\nOrderedDict\n)R(}cos\nsystem\n", "\"os.system\""}};  // in attributes
  for (const auto& [pickle, name] : cases) {
    const std::string message = error_of_pickle(ErrorCode::kUnsupported, "\x80\x02" + pickle);
    EXPECT_CONTAINS(message, "weights.bin");
    EXPECT_CONTAINS(message, name);
    EXPECT_CONTAINS(message, "nothing of the file is executed");
  }
}

TEST(TorchPickle, CallsOfWhatIsNoFunctionAreRefused) {
  const std::string tensor = "ctorch._utils\n_rebuild_tensor_v2\n)R";
  EXPECT_CONTAINS(error_of_pickle(ErrorCode::kUnsupported,
                                  "\x80\x02"
                                  "ctorch\nFloatStorage\n)R."),
                  "\"torch.FloatStorage\" is called");
  EXPECT_CONTAINS(error_of_pickle(ErrorCode::kUnsupported, "\x80\x02" + tensor + ")R."),
                  "what is called is not a name");
  EXPECT_CONTAINS(error_of_pickle(ErrorCode::kInvalidData, "\x80\x02" + tensor + "}b."),
                  "not an OrderedDict");
  EXPECT_CONTAINS(error_of_pickle(ErrorCode::kInvalidData, "\x80\x02}}b."), "not an OrderedDict");
  EXPECT_CONTAINS(error_of_pickle(ErrorCode::kInvalidData,
                                  "\x80\x02"
                                  "ctorch\nSize\n]R."),
                  "arguments of a call");
  // INST, OBJ, NEWOBJ, NEWOBJ_EX, EXT1, DUP, POP, PERSID, protocol 0 integers, sets, bytes
  for (const char opcode :
       {'i', 'o', '\x81', '\x92', '\x82', '2', '0', 'P', 'I', '\x8f', 'C', '\x00', '\xff'})
    EXPECT_CONTAINS(error_of_pickle(ErrorCode::kUnsupported, std::string("\x80\x02}") + opcode),
                    "nothing of the file is executed");
}

TEST(TorchPickle, BrokenOnes) {
  const auto broken = [](const std::string& pickle) {
    return error_of_pickle(ErrorCode::kInvalidData, "\x80\x02" + pickle);
  };
  EXPECT_CONTAINS(broken(""), "a pickle opcode");
  EXPECT_CONTAINS(broken("."), "the stack is empty");
  EXPECT_CONTAINS(broken("N(."), "the stack is empty");  // what is below a mark is out of reach
  EXPECT_CONTAINS(broken("t."), "no mark");
  EXPECT_CONTAINS(broken("}(Nu."), "a key has no value");
  EXPECT_CONTAINS(broken("NNa."), "not a list");
  EXPECT_CONTAINS(broken("h\x05."), "memo 5 has not been set");
  EXPECT_CONTAINS(broken("\x8a\x09xxxxxxxxx."), "9 bytes, at most 8");
  EXPECT_CONTAINS(broken("X\xff\xff\xff\xff"
                         "abc"),
                  "needs 4294967295 bytes");
  EXPECT_CONTAINS(broken(std::string("\x8d\xff\xff\xff\xff\xff\xff\xff\xff", 9)),
                  "needs 18446744073709551615 bytes");
  EXPECT_CONTAINS(broken("cno end of the name"), "a name without an end");
  EXPECT_CONTAINS(broken("ccollections\nOrderedDict\n(]NatR."), "not pairs");
  EXPECT_CONTAINS(broken("N."), "no dict of tensors");
  EXPECT_CONTAINS(broken("}."), "no tensors");
  EXPECT_CONTAINS(broken("}" + pickle_text("model") + "}s."), "no tensors, but \"model\"");
  EXPECT_CONTAINS(error_of_pickle(ErrorCode::kUnsupported, "\x80\x01}."), "protocol 1, supported are 2 to 5");
}

TEST(TorchPickle, BombsAreBounded) {
  EXPECT_CONTAINS(error_of_pickle(ErrorCode::kInvalidData, "\x80\x02" + std::string(5'000'000, 'N')),
                  "steps");
  // 100 000 pairs that are made a dict over and over
  std::string pairs = "\x80\x02](";
  for (int i = 0; i < 100'000; ++i) pairs += "NN\x86";
  pairs += "e\x85q\x01";
  for (int i = 0; i < 100'000; ++i) pairs += "ccollections\nOrderedDict\nh\x01R";
  EXPECT_CONTAINS(error_of_pickle(ErrorCode::kInvalidData, pairs), "steps");
  // Tuples of the same tuple twice, a million deep: nothing walks them.
  std::string nested = "\x80\x02)q\x01";
  for (int i = 0; i < 1'000'000; ++i) nested += "h\x01\x86";
  EXPECT_THROW(parse_torch(as_bytes(zip_of({{"a/data.pkl", nested + "."}})), "w"), Error);
  EXPECT_CONTAINS(error_of_pickle(ErrorCode::kInvalidData,
                                  "\x80\x02]q\x01h\x01"
                                  "a."),
                  "no dict");  // holds itself
  EXPECT_CONTAINS(error_of_pickle(ErrorCode::kInvalidData, "\x80\x02}r\xff\xff\xff\xff."), "no tensors");
}

TEST(TorchPickle, TensorsStayInTheirStorage) {
  const auto with = [](ErrorCode code, int64_t numel, int64_t offset, const std::vector<int64_t>& sizes,
                       const std::vector<int64_t>& strides) {
    const std::string value =
        pickle_tensor(pickle_storage("FloatStorage", "0", numel), offset, sizes, strides);
    const std::string message = error_of_pickle(code, pickle_dict({{"w", value}}), std::string(24, 'x'));
    EXPECT_CONTAINS(message, "weights.bin: tensor \"w\"");
    return message;
  };
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_CONTAINS(with(ErrorCode::kInvalidData, 7, 0, {2}, {1}),
                  "storage of 7 elements; storage \"0\" has 24 bytes");
  EXPECT_CONTAINS(with(ErrorCode::kInvalidData, kHuge, 0, {2}, {1}), "has 24 bytes");
  EXPECT_CONTAINS(with(ErrorCode::kInvalidData, 6, 5, {2}, {1}), "past the end");
  EXPECT_CONTAINS(with(ErrorCode::kInvalidData, 6, 0, {3, 2}, {3, 1}), "past the end");
  EXPECT_CONTAINS(with(ErrorCode::kInvalidData, 6, kHuge, {1}, {1}), "past the end");
  EXPECT_CONTAINS(with(ErrorCode::kInvalidData, 6, 0, {2, 2}, {kHuge, kHuge}), "past the end");
  EXPECT_CONTAINS(with(ErrorCode::kInvalidData, 6, 0, {kHuge, 4}, {0, 0}), "overflows");
  EXPECT_CONTAINS(with(ErrorCode::kUnsupported, 6, 0, {1000, 1000}, {0, 0}),
                  "more elements than its storage");
  EXPECT_CONTAINS(with(ErrorCode::kUnsupported, 6, 0, {2, 3}, {0, 1}), "one element stands for many");
  EXPECT_CONTAINS(with(ErrorCode::kInvalidData, 6, 0, {-1}, {1}), "no integer from 0 up");
  EXPECT_CONTAINS(with(ErrorCode::kInvalidData, 6, 0, {2}, {-1}), "no integer from 0 up");
  EXPECT_CONTAINS(with(ErrorCode::kInvalidData, 6, 0, {2, 2}, {1}), "2 dimensions but 1 strides");
  EXPECT_CONTAINS(with(ErrorCode::kUnsupported, 6, 0, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}), "5 dimensions");
}

TEST(TorchPickle, StorageIdsOfOtherKinds) {
  const auto with = [](const std::string& storage) {
    return error_of_pickle(ErrorCode::kInvalidData,
                           pickle_dict({{"w", pickle_tensor(storage, 0, {1}, {1})}}));
  };
  EXPECT_CONTAINS(with("N"), "not made from a storage");
  EXPECT_CONTAINS(with("NQ"), "described in another way");
  EXPECT_CONTAINS(with(cat("(", pickle_text("module"), "NNNNtQ")), "described in another way");
  EXPECT_CONTAINS(with(pickle_storage("float32", "0", 1)), "unknown kind");
  EXPECT_CONTAINS(with(pickle_storage("FloatStorage", "../0", 1)), "no entry \"archive/data/../0\"");
}

// ---- archives

TEST(TorchZip, EntriesThatAreNotReadableAsTheyAre) {
  const std::vector<std::pair<std::string, std::string>> entries = {{"archive/data.pkl", "\x80\x02}."}};
  const auto error = [&](ErrorCode code, const std::string& bytes) {
    return error_of(code, [&] { parse_torch(as_bytes(bytes), "w.bin"); });
  };
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported, zip_of(entries, 8)),
                  "entry \"archive/data.pkl\" is compressed (method 8)");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported, zip_of(entries, 0, 1)), "is encrypted");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData, zip_of({entries[0], entries[0]})), "there twice");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData, zip_of({{"other", "x"}})), "no entry \"data.pkl\"");
  EXPECT_CONTAINS(error(ErrorCode::kUnsupported, zip_of({entries[0], {"archive/byteorder", "big"}})),
                  "byteorder is \"big\"");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData, "PK\x03\x04 and nothing"), "no end record");
  EXPECT_CONTAINS(error(ErrorCode::kInvalidData, "GGUF"), "not a file of torch.save");
}

TEST(TorchZip, DirectoriesThatPointElsewhere) {
  const std::string good = zip_of({{"archive/data.pkl", "\x80\x02}."}});
  const auto with = [&](size_t from_end, uint32_t value) {
    std::string bytes = good;
    bytes.replace(bytes.size() - from_end, 4, raw(value));
    return error_of(ErrorCode::kInvalidData, [&] { parse_torch(as_bytes(bytes), "w.bin"); });
  };
  EXPECT_CONTAINS(with(6, 0x7fffffff), "the directory is said to be");
  EXPECT_CONTAINS(with(10, 0x7fffffff), "the directory is said to be");
  EXPECT_CONTAINS(with(6, 0), "no directory entry");
  EXPECT_CONTAINS(with(6, 0xffffffff), "zip64 locator");
  EXPECT_CONTAINS(with(22 + 16 + 4, 0x7ffffff0), "a local header is said to be");  // the offset of the entry
}

}  // namespace
}  // namespace lmdeploy
