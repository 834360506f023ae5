#include "lmdeploy/hub/replies.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

TEST(Replies, Etags) {
  for (const char* form : {"abc", "\"abc\"", "W/\"abc\""}) EXPECT_EQ(normalize_etag(form), "abc");
  EXPECT_EQ(normalize_etag("\""), "\"");
  EXPECT_EQ(normalize_etag(""), "");
}

TEST(Replies, Ranges) {
  EXPECT_EQ(range_begin("bytes 100-199/200"), 100);
  EXPECT_EQ(range_begin("bytes 0-0/*"), 0);
  for (const char* bad :
       {"", "bytes */200", "bytes -5-9/10", "100-199/200", "bytes 99999999999999999999-1/2"})
    EXPECT_EQ(range_begin(bad), -1) << bad;
}

TEST(Replies, LinkedHeadersOfARedirectComeFirst) {
  HttpReply hop, reply;
  hop.headers = {{"x-linked-etag", "\"big\""}, {"x-linked-size", "7"}, {"etag", "\"pointer\""}};
  reply.headers = {{"etag", "\"storage\""}, {"content-length", "5"}};
  reply.redirects = {hop};
  EXPECT_EQ(parse_file_headers(reply, "f").etag, "big");
  EXPECT_EQ(parse_file_headers(reply, "f").size, 7);
  reply.redirects.clear();
  EXPECT_EQ(parse_file_headers(reply, "f").etag, "storage");
  EXPECT_EQ(parse_file_headers(reply, "f").size, 5);
}

TEST(Replies, ModelScopeListing) {
  const auto files = parse_modelscope_listing(
      R"({"Data": {"Files": [{"Path": "d", "Type": "tree"}, {"Path": "d/a", "Type": "blob", "Size": 3, "Sha256": "x"},
                             {"Path": "d/a", "Type": "blob", "Size": 3}]}})",
      "list");
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].path, "d/a");
  EXPECT_EQ(files[0].etag, "");  // "x" is no hash
  for (const char* bad :
       {R"({"Data": null})", R"({"Data": {"Files": [{"Path": "../a", "Type": "blob", "Size": 1}]}})",
        R"({"Data": {"Files": [{"Path": "a", "Type": "blob", "Size": -1}]}})",
        R"({"Data": {"Files": [{"Path": "a", "Type": "blob", "Size": 1e300}]}})",
        R"({"Data": {"Files": [{"Path": "a", "Type": "blob"}]}})"})
    EXPECT_THROW(parse_modelscope_listing(bad, "list"), Error) << bad;
}

TEST(Replies, FailuresDoNotShowSignatures) {
  HttpReply reply;
  reply.url = "https://storage.example/x?signature=secret";
  reply.trouble = "cut";
  EXPECT_EQ(describe_failure(reply), "https://storage.example/x: cut");
}

}  // namespace
}  // namespace lmdeploy
