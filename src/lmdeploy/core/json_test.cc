// JSON limits and messages, file reading, error text, log levels, and counter-based random numbers.
#include "lmdeploy/core/json.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

std::string message_of(auto&& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Json, KeepsOrderAndNumberKinds) {
  const Json value = parse_json(R"({"b": 1, "a": 1.0, "c": 18446744073709551615})", "text");
  EXPECT_EQ(value.as_object().begin()->key(), "b");
  EXPECT_TRUE(value.at("b").is_int64());
  EXPECT_TRUE(value.at("a").is_double());
  EXPECT_TRUE(value.at("c").is_uint64());
  EXPECT_EQ(json_kind(value.at("a")), "a number");
}

TEST(Json, SaysWhereTheMistakeIs) {
  const std::string message =
      message_of([] { parse_json("{\n \"a\": ?}", "config.json"); }, ErrorCode::kInvalidData);
  EXPECT_NE(message.find("config.json"), std::string::npos) << message;
  EXPECT_NE(message.find("line 2, column 7"), std::string::npos) << message;
}

TEST(Json, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "[1,]", "{} x", "\"\xff\"", "nul", "\"a\nb\""})
    message_of([&] { parse_json(text, "t"); }, ErrorCode::kInvalidData);
  message_of([&] { parse_json(std::string(300, '[') + std::string(300, ']'), "t"); },
             ErrorCode::kInvalidData);
  EXPECT_NO_THROW(parse_json(std::string(200, '[') + std::string(200, ']'), "t"));
}

TEST(Files, MissingEmptyAndLargeFiles) {
  const std::string path = testing::TempDir() + "files_test.bin";
  message_of([&] { MappedFile(testing::TempDir() + "no such file"); }, ErrorCode::kNotFound);
  message_of([&] { MappedFile{testing::TempDir()}; }, ErrorCode::kIo);
  std::ofstream(path).close();
  EXPECT_TRUE(MappedFile(path).bytes().empty());
  std::ofstream(path) << "hello";
  EXPECT_EQ(read_file(path), "hello");
  EXPECT_NE(message_of([&] { read_file(path, 4); }, ErrorCode::kInvalidData).find("5 bytes"),
            std::string::npos);
  const MappedFile mapped(path);
  mapped.drop(mapped.bytes());
  EXPECT_EQ(static_cast<char>(mapped.bytes()[1]), 'e');
  std::remove(path.c_str());
}

TEST(Files, GitLfsPointersAreNamed) {
  const std::string path = testing::TempDir() + "pointer.bin";
  std::ofstream(path) << "version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
  for (const auto& open :
       {std::function<void()>([&] { MappedFile{path}; }), std::function<void()>([&] { read_file(path); })}) {
    const std::string message = message_of(open, ErrorCode::kInvalidData);
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_NE(message.find("git lfs pull"), std::string::npos) << message;
  }
  std::remove(path.c_str());
}

TEST(Error, CatJoinsTextNumbersAndNamedTypes) {
  EXPECT_EQ(cat("a", 1, -2.5, true, 'c', std::string("d"), ErrorCode::kBusy), "a1-2.5truecdbusy");
  EXPECT_EQ(cat(18446744073709551615ull, int8_t{-3}), "18446744073709551615-3");
}

TEST(Log, LevelNames) {
  EXPECT_EQ(log_level_from_string("warning"), LogLevel::kWarning);
  EXPECT_EQ(log_level_from_string("DEBUG"), LogLevel::kDebug);
  EXPECT_NE(message_of([] { log_level_from_string("loud"); }, ErrorCode::kInvalidArgument).find("WARNING"),
            std::string::npos);
}

TEST(Random, DependsOnSeedAndCounterOnly) {
  EXPECT_EQ(random_bits(1, 5), random_bits(1, 5));
  EXPECT_NE(random_bits(1, 5), random_bits(1, 6));
  EXPECT_NE(random_bits(1, 5), random_bits(2, 5));
  // 10 bins, 100,000 draws: chi-square with 9 degrees of freedom stays under 27.9 with probability 0.999.
  Rng rng(3);
  double bins[10] = {};
  for (int i = 0; i < 100000; ++i) bins[static_cast<int>(rng.uniform() * 10)] += 1;
  double chi = 0;
  for (const double b : bins) chi += (b - 10000) * (b - 10000) / 10000;
  EXPECT_LT(chi, 27.9);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(rng.below(7), 7u);
}

}  // namespace
}  // namespace lmdeploy
