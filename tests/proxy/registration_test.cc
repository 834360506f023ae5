// api_server --proxy-url: a server that keeps itself among the nodes of a real proxy.
#include "lmdeploy/serve/proxy_registration.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "../http/raw_client.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/expect_error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/proxy/proxy.h"

namespace lmdeploy::testing {
namespace {

using std::chrono::milliseconds;

void poll_until(const std::string& what, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "never came: " << what;
    std::this_thread::sleep_for(milliseconds(1));
  }
}

std::unique_ptr<proxy::Proxy> start_proxy(int port = 0, std::vector<std::string> keys = {}) {
  proxy::ProxyOptions options;
  options.server.address = "127.0.0.1";
  options.server.port = port;
  options.api_keys = std::move(keys);
  return std::make_unique<proxy::Proxy>(options);
}

ProxyRegistrationOptions options_for(int proxy_port) {
  ProxyRegistrationOptions options;
  options.proxy_url = cat("http://127.0.0.1:", proxy_port);
  options.port = 23333;
  options.models = {"org/Model", "alias"};
  options.interval = milliseconds(5);
  return options;
}

std::vector<std::string> nodes_of(proxy::Proxy& proxy, std::vector<std::string>* models = nullptr) {
  std::vector<std::string> urls;
  for (const proxy::Node& node : proxy.nodes().nodes()) {
    urls.push_back(node.url);
    if (models != nullptr) *models = node.status.models;
  }
  return urls;
}

const std::vector<std::string> kListed = {"http://127.0.0.1:23333"};

TEST(ProxyRegistration, RegistersWithItsNamesAndLeaves) {
  const auto proxy = start_proxy();
  {
    const ProxyRegistration registration(options_for(proxy->port()));
    std::vector<std::string> models;
    poll_until("the node", [&] { return nodes_of(*proxy, &models) == kListed; });
    EXPECT_EQ(models, (std::vector<std::string>{"org/Model", "alias"}));
  }
  EXPECT_TRUE(nodes_of(*proxy).empty());
}

TEST(ProxyRegistration, AProxyThatStartsLaterOrAgain) {
  auto proxy = start_proxy();
  const int port = proxy->port();
  proxy.reset();
  ProxyRegistrationOptions options = options_for(port);
  options.tls = true;
  options.host = "::1";
  const ProxyRegistration registration(options);
  for (int i = 0; i < 3; ++i) {
    proxy = start_proxy(port);
    poll_until("the node",
               [&] { return nodes_of(*proxy) == std::vector<std::string>{"https://[::1]:23333"}; });
    proxy.reset();
  }
}

TEST(ProxyRegistration, SendsTheKeyThatTheProxyAsksFor) {
  const auto proxy = start_proxy(0, {"k1"});
  ProxyRegistrationOptions options = options_for(proxy->port());
  { const ProxyRegistration without(options); }
  EXPECT_TRUE(nodes_of(*proxy).empty());
  options.api_key = "k1";
  const ProxyRegistration with(options);
  poll_until("the node", [&] { return nodes_of(*proxy) == kListed; });
}

/// What answers there need not be a proxy, or answer at all.
TEST(ProxyRegistration, EndsWhateverAnswers) {
  RawListener silent;
  ProxyRegistrationOptions options = options_for(silent.port());
  options.timeout = milliseconds(50);
  { const ProxyRegistration registration(options); }
  for (const char* body : {"[]", "nonsense", "{}"}) {
    RawListener listener;
    options.proxy_url = listener.url();
    const ProxyRegistration registration(options);
    RawClient asked = listener.accept();
    EXPECT_TRUE(asked.read_head().starts_with("GET /nodes/status"));
    asked.send(cat("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ", std::string(body).size(),
                   "\r\n\r\n", body));
  }
  options.proxy_url = "nonsense";
  expect_error(ErrorCode::kInvalidArgument, {"nonsense"}, [&] { ProxyRegistration wrong(options); });
}

}  // namespace
}  // namespace lmdeploy::testing
