#include "lmdeploy/hub/names.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

TEST(Names, ModelIds) {
  for (const char* good : {"org/name", "a/b", "HuggingFaceTB/SmolLM2-135M", "01-ai/Yi-1.5_x", "o.rg/na.me"})
    EXPECT_TRUE(parse_model_id(good)) << good;
  for (const char* bad :
       {"",           "/",    "a",      "a/",      "/b",       "a/b/c",           "./a",
        "../a",       "a/..", "a/.b",   "-a/b",    "a/b-",     "a--b/c",          "a b/c",
        "a/b\n",      "ä/b",  "a\\b/c", "a/b.git", "a/b.gguf", "a/b.safetensors", "~/models",
        "http://a/b", "C:/a"})
    EXPECT_FALSE(parse_model_id(bad)) << bad;
  EXPECT_FALSE(parse_model_id(std::string("a/b\0c", 5)));
  EXPECT_FALSE(parse_model_id(std::string(97, 'a') + "/b"));
}

TEST(Names, OneFileOfARepository) {
  const auto id = parse_model_id("org/name/folder/x-Q4.gguf");
  ASSERT_TRUE(id);
  EXPECT_EQ(id->repository(), "org/name");
  EXPECT_EQ(id->file, "folder/x-Q4.gguf");
  for (const char* bad : {"org/name/x.bin", "org/name/../x.gguf", "org/name//x.gguf", "org/name/"})
    EXPECT_FALSE(parse_model_id(bad)) << bad;
}

TEST(Names, Revisions) {
  for (const char* good : {"main", "v1.0", "refs/pr/1", "feature/x", "0a1b2c3"}) check_revision(good);
  for (const char* bad : {"", "..", "a/../b", "/a", "a/", "-a", "a b", "a:b", "a\tb", "a\\b"})
    EXPECT_THROW(check_revision(bad), Error) << bad;
  EXPECT_TRUE(is_commit(std::string(40, 'a')));
  EXPECT_FALSE(is_commit(std::string(40, 'A')));
  EXPECT_FALSE(is_commit(std::string(39, 'a')));
}

TEST(Names, Quoting) {
  EXPECT_EQ(url_quote("refs/pr/1"), "refs%2Fpr%2F1");
  EXPECT_EQ(url_quote("a b/ü?#", "/"), "a%20b/%C3%BC%3F%23");
  EXPECT_EQ(shown("a\x1b[31m\nb\xff"), "a [31m b\xEF\xBF\xBD");
  EXPECT_EQ(shown(std::string(5000, 'x')).size(), 300u);
}

}  // namespace
}  // namespace lmdeploy
