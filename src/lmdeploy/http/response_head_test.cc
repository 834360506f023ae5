#include "lmdeploy/http/response_head.h"

#include <gtest/gtest.h>

namespace lmdeploy::http {
namespace {

TEST(ResponseHead, LinesInOrder) {
  Response response;
  response.status = 404;
  response.body = "12345";
  response.headers.add("X-A", "b");
  Request request;
  request.id = "id";
  const std::string head = response_head(response, request, {}, {Framing::kLength, false});
  EXPECT_EQ(head.rfind("HTTP/1.1 404 Not Found\r\nDate: ", 0), 0u) << head;
  const std::string rest = head.substr(head.find("GMT"));
  EXPECT_EQ(rest,
            "GMT\r\nServer: lmdeploy\r\nX-Request-Id: id\r\nContent-Type: application/json\r\nX-A: b\r\n"
            "Content-Length: 5\r\nConnection: close\r\n\r\n");
}

TEST(ResponseHead, Framings) {
  const auto has = [](int status, Framing framing, const char* line) {
    Response response;
    response.status = status;
    return response_head(response, {}, {}, {framing, true}).find(line) != std::string::npos;
  };
  EXPECT_TRUE(has(200, Framing::kChunked, "Transfer-Encoding: chunked\r\n"));
  EXPECT_FALSE(has(200, Framing::kChunked, "Content-Length"));
  EXPECT_FALSE(has(200, Framing::kUntilClose, "Content-Length"));
  for (const int status : {100, 204, 304}) {
    EXPECT_FALSE(may_have_body(status));
    EXPECT_FALSE(has(status, Framing::kChunked, "Transfer-Encoding"));
    EXPECT_FALSE(has(status, Framing::kLength, "Content-Length"));
  }
}

TEST(ResponseHead, AHandlersVaryStays) {
  Response response;
  response.headers.add("Vary", "Accept");
  Request request;
  request.headers.add("Origin", "https://a");
  CorsOptions cors;
  cors.origins = {"https://a"};
  const std::string head = response_head(response, request, cors, {});
  EXPECT_NE(head.find("Vary: Accept\r\n"), std::string::npos) << head;
  EXPECT_NE(head.find("Vary: Origin\r\n"), std::string::npos) << head;
}

}  // namespace
}  // namespace lmdeploy::http
