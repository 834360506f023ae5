#include "lmdeploy/http/error_format.h"

#include <gtest/gtest.h>

namespace lmdeploy::http {
namespace {

ErrorFormat format_of(const std::string& target, const std::string& path = "") {
  Request request;
  request.target = target;
  request.url.path = path;
  return error_format(request);
}

TEST(ErrorFormat, GoesByThePath) {
  for (const char* path : {"/v1/messages", "/v1/messages/", "/v1/messages/count_tokens",
                           "/v1/messages?beta=true", "/anthropic", "/anthropic/v1/models"})
    EXPECT_EQ(format_of(path), ErrorFormat::kAnthropic) << path;
  for (const char* path : {"", "/", "/v1/messages2", "/v1/models", "/anthropics", "/v2/v1/messages"})
    EXPECT_EQ(format_of(path), ErrorFormat::kOpenAi) << path;
  EXPECT_EQ(format_of("http://host/v1/messages", "/v1/messages"), ErrorFormat::kAnthropic);
}

TEST(ErrorFormat, OpenAisBodySaysItTwice) {
  EXPECT_EQ(
      to_json_text(openai_error_body(404, "why", "model", "model_not_found")),
      R"({"object":"error","message":"why","type":"not_found_error","param":"model","code":404,)"
      R"("error":{"message":"why","type":"not_found_error","param":"model","code":"model_not_found"}})");
  EXPECT_EQ(to_json_text(openai_error(401, "why")),
            R"({"message":"why","type":"authentication_error","param":null,"code":"invalid_api_key"})");
}

TEST(ErrorFormat, EachStatusHasItsType) {
  const std::pair<int, const char*> types[] = {{400, "invalid_request_error"},
                                               {401, "authentication_error"},
                                               {404, "not_found_error"},
                                               {405, "invalid_request_error"},
                                               {413, "request_too_large"},
                                               {500, "api_error"},
                                               {502, "api_error"},
                                               {503, "overloaded_error"}};
  for (const auto& [status, type] : types) {
    const JsonObject error = anthropic_error(status, "why");
    EXPECT_EQ(error.at("type"), "error");
    EXPECT_EQ(error.at("error").as_object().at("type"), type) << status;
    EXPECT_EQ(error.at("error").as_object().at("message"), "why");
  }
}

}  // namespace
}  // namespace lmdeploy::http
