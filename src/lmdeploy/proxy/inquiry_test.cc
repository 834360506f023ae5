#include "lmdeploy/proxy/inquiry.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/proxy/passed_headers.h"

namespace lmdeploy::proxy {
namespace {

uint64_t prefix(const std::string& body) { return read_inquiry("{" + body + "}").prefix; }

TEST(Inquiry, Model) {
  EXPECT_EQ(read_inquiry(R"({"model": "a/b", "x": [1]})").model, "a/b");
  EXPECT_EQ(read_inquiry(R"({"model": null})").model, "");
  EXPECT_EQ(read_inquiry("{}").model, "");
}

TEST(Inquiry, F69_BadInput) {
  for (const char* body : {"", "{\"model\":", "[]", "null", "\"x\"", "3"})
    expect_error(ErrorCode::kInvalidData, {"request body"}, [&] { read_inquiry(body); });
  expect_error(ErrorCode::kInvalidData, {"\"model\" is an integer", "expected a string"},
               [] { read_inquiry(R"({"model": 3})"); });
}

TEST(Inquiry, AConversationKeepsItsPrefix) {
  const std::string system = R"({"role": "system", "content": "You are kind."})";
  const std::string user = R"({"role": "user", "content": "Hello"})";
  const uint64_t first = prefix("\"messages\": [" + system + "," + user + "]");
  const std::string answer =
      R"({"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Again"})";
  EXPECT_EQ(prefix("\"messages\": [" + system + "," + user + "," + answer + "]"), first);
  EXPECT_NE(prefix("\"messages\": [" + system + R"(, {"role": "user", "content": "Other"}])"), first);
  EXPECT_NE(prefix("\"messages\": [" + user + "]"), first);
  EXPECT_EQ(prefix(R"("messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}])"),
            prefix("\"messages\": [" + user + "]"));
}

TEST(Inquiry, PromptsOfAllKinds) {
  const std::string begin(1024, 'x');
  EXPECT_EQ(prefix("\"prompt\": \"" + begin + "a\""), prefix("\"prompt\": \"" + begin + "b\""));
  EXPECT_NE(prefix("\"prompt\": \"a\""), prefix("\"prompt\": \"b\""));
  EXPECT_NE(prefix("\"prompt\": [1, 2]"), prefix("\"prompt\": [1, 3]"));
  EXPECT_NE(prefix("\"input\": \"a\""), prefix("\"input\": \"b\""));
  EXPECT_NE(prefix("\"messages\": \"a\""), prefix("\"messages\": \"b\""));
  for (const char* odd :
       {"\"messages\": 3", "\"messages\": [3, null]", "\"messages\": [{\"role\": []}]", "\"prompt\": {}"})
    prefix(odd);
}

TEST(PassedHeaders, ToTheNode) {
  http::Request request;
  request.id = "the-id";
  request.client = "10.0.0.1:555";
  for (const auto& [name, value] : std::vector<http::Headers::Field>{{"Host", "front:1"},
                                                                     {"Authorization", "Bearer k"},
                                                                     {"Connection", "close, X-Hop"},
                                                                     {"X-Hop", "1"},
                                                                     {"Content-Length", "3"},
                                                                     {"Expect", "100-continue"},
                                                                     {"X-Forwarded-For", "1.2.3.4"},
                                                                     {"X-Own", "2"},
                                                                     {"Transfer-Encoding", "chunked"}})
    request.headers.add(name, value);
  const http::Headers headers = headers_to_node(request, /*tls=*/true, "p1");
  EXPECT_EQ(*headers.find("Authorization"), "Bearer k");
  EXPECT_EQ(*headers.find("X-Own"), "2");
  EXPECT_EQ(*headers.find("X-Forwarded-For"), "1.2.3.4, 10.0.0.1");
  EXPECT_EQ(*headers.find("X-Forwarded-Host"), "front:1");
  EXPECT_EQ(*headers.find("X-Forwarded-Proto"), "https");
  EXPECT_EQ(*headers.find("X-Request-Id"), "the-id");
  EXPECT_EQ(*headers.find("Via"), "1.1 p1");
  EXPECT_EQ(headers.fields().size(), 7u);
}

TEST(PassedHeaders, TellWhichProxiesARequestHasPassed) {
  http::Request request;
  request.headers.add("via", "1.0 other, 1.1 p1");
  const http::Headers headers = headers_to_node(request, /*tls=*/false, "p2");
  for (const char* name : {"other", "p1", "p2"}) EXPECT_TRUE(has_passed(headers, name)) << name;
  EXPECT_FALSE(has_passed(headers, "p3"));
  EXPECT_FALSE(has_passed(request.headers, "p2"));
}

TEST(PassedHeaders, ToTheClient) {
  http::Headers given;
  for (const char* name :
       {"Content-Type", "Content-Length", "Date", "Server", "Connection", "Transfer-Encoding",
        "Access-Control-Allow-Origin", "X-Request-Id", "X-Own", "Retry-After", "Cache-Control"})
    given.add(name, "v");
  const http::Headers headers = headers_to_client(given);
  EXPECT_EQ(headers.fields().size(), 3u);
  for (const char* name : {"X-Own", "Retry-After", "Cache-Control"})
    EXPECT_NE(headers.find(name), nullptr) << name;
}

}  // namespace
}  // namespace lmdeploy::proxy
