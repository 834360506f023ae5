// Redirects, secrets and protocols.
#include "lmdeploy/hub/http_client.h"

#include "fake_hub.h"

namespace lmdeploy::testing {
namespace {

StandInReply redirect(const std::string& location, int status = 302) {
  StandInReply reply;
  reply.status = status;
  reply.headers = {{"Location", location}};
  return reply;
}

std::string secret_of(const StandInRequest& request) {
  const auto found = request.headers.find("authorization");
  return found == request.headers.end() ? "" : found->second;
}

class HttpClientTest : public HubTest {
 protected:
  HttpReply send(const std::string& url) {
    body_.clear();
    return client_.send({.url = url, .secret = "Authorization: Bearer s3cret"},
                        [&](const HttpReply&, std::string_view bytes) { body_ += bytes; });
  }
  std::string refused(const std::string& url) {
    try {
      send(url);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  HttpClient client_{config_.patience, {}, {}};
  std::string body_;
};

TEST_F(HttpClientTest, SecretsStayWithTheirHost) {
  HttpStandIn other([](const StandInRequest&) { return StandInReply{.body = "there"}; });
  HttpStandIn hub([&](const StandInRequest& request) {
    if (request.target == "/a") return redirect("/b", 307);
    return redirect(other.url() + "/c");
  });
  const HttpReply reply = send(hub.url() + "/a");
  EXPECT_EQ(body_, "there");
  EXPECT_EQ(reply.url, other.url() + "/c");
  ASSERT_EQ(reply.redirects.size(), 2u);
  ASSERT_EQ(hub.requests().size(), 2u);
  EXPECT_EQ(secret_of(hub.requests()[1]), "Bearer s3cret");
  ASSERT_EQ(other.requests().size(), 1u);
  EXPECT_EQ(secret_of(other.requests()[0]), "");
}

TEST_F(HttpClientTest, ASecretIsNotSentAgainAfterTheDetour) {
  std::string hub_url;
  HttpStandIn other([&](const StandInRequest&) { return redirect(hub_url + "/back"); });
  HttpStandIn hub([&](const StandInRequest& request) {
    return request.target == "/back" ? StandInReply{.body = "back"} : redirect(other.url());
  });
  hub_url = hub.url();
  send(hub.url() + "/a");
  EXPECT_EQ(body_, "back");
  EXPECT_EQ(secret_of(hub.requests().at(1)), "");
}

TEST_F(HttpClientTest, SaysWhoItIsAndNothingElse) {
  HttpStandIn server([](const StandInRequest&) { return StandInReply{}; });
  client_.send({.url = server.url()});
  std::string names;
  const StandInRequest request = server.requests().at(0);
  for (const auto& [name, value] : request.headers) names += name + " ";
  EXPECT_EQ(names, "accept accept-encoding host user-agent ");
  EXPECT_EQ(request.headers.at("user-agent").substr(0, 9), "lmdeploy/");
}

TEST_F(HttpClientTest, FollowsOnlyPlainWebAddresses) {
  std::string location;
  HttpStandIn server([&](const StandInRequest&) { return redirect(location); });
  for (const char* bad : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/",
                          "http://user:pw@127.0.0.1/", "javascript:x", "http://", "http://\x01/"}) {
    location = bad;
    EXPECT_NE(refused(server.url()).find("not a plain http or https address"), std::string::npos) << bad;
  }
  location = "/again";
  EXPECT_NE(refused(server.url()).find("more than 10 redirects"), std::string::npos);
}

TEST_F(HttpClientTest, OriginsAndTargets) {
  EXPECT_EQ(url_origin("https://Hub.example/a"), "https://hub.example:443");
  EXPECT_EQ(url_origin("http://hub.example:80/a?b"), url_origin("http://hub.example"));
  EXPECT_NE(url_origin("http://hub.example"), url_origin("https://hub.example"));
  EXPECT_EQ(url_origin("ftp://hub.example"), "");
  EXPECT_EQ(url_origin("hub"), "");
  EXPECT_EQ(resolve_url("https://a.b/c/d?e", "../f"), "https://a.b/f");
  EXPECT_EQ(resolve_url("https://a.b/c", "//d.e/f"), "https://d.e/f");
}

TEST_F(HttpClientTest, WhatTheSinkAndThePollThrowComesOut) {
  HttpStandIn server([](const StandInRequest&) { return StandInReply{.body = "x"}; });
  EXPECT_THROW(client_.send({.url = server.url()},
                            [](const HttpReply&, std::string_view) { throw Error(ErrorCode::kIo, "full"); }),
               Error);
  HttpClient polled(config_.patience, {}, [] { throw Error(ErrorCode::kClosed, "stop"); });
  EXPECT_THROW(polled.send({.url = server.url()}), Error);
  EXPECT_EQ(client_.send({.url = server.url()}).status, 200);  // goes on working
}

TEST_F(HttpClientTest, NoServerIsAnOrdinaryOutcome) {
  std::string url;
  {
    HttpStandIn server([](const StandInRequest&) { return StandInReply{}; });
    url = server.url();
  }
  const HttpReply reply = send(url);
  EXPECT_FALSE(reply.ok());
  EXPECT_FALSE(reply.trouble.empty());
  EXPECT_FALSE(reply.retryable);  // nobody waits for several tries without a network
}

}  // namespace
}  // namespace lmdeploy::testing
