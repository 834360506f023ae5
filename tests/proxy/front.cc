#include "front.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace lmdeploy::testing {

using std::chrono::milliseconds;

void poll_until(const std::string& what, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "never came: " << what;
      return;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

proxy::ProxyOptions quick_probes(proxy::ProxyOptions options) {
  options.probes = {milliseconds(20), milliseconds(5), milliseconds(20), milliseconds(2000)};
  return options;
}

std::string Front::add(const std::string& url, const std::string& status) const {
  return connect().post("/nodes/add", "{\"url\": \"" + url + "\", \"status\": " + status + "}").body;
}

void Front::add(const FakeNode& node) const { EXPECT_EQ(add(node.url()), "\"Added successfully\""); }

Json Front::status() const { return parse_json(connect().get("/nodes/status").body, "status"); }

void Front::await_up(const std::string& url, bool up) {
  poll_until(url + (up ? " up" : " out"), [&] {
    for (const proxy::Node& node : proxy_.nodes().nodes())
      if (node.url == url) return node.up == up;
    return false;
  });
}

void Front::expect_nothing_unfinished() {
  poll_until("the end of all requests", [&] {
    for (const proxy::Node& node : proxy_.nodes().nodes())
      if (node.status.unfinished != 0) return false;
    return true;
  });
}

int send_many(const Front& front, int count, int concurrency, const std::string& body) {
  std::atomic<int> left = count, failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < concurrency; ++i)
    threads.emplace_back([&] {
      RawClient client = front.connect();
      while (left-- > 0) {
        const RawReply reply = client.post(kChat, body);
        if (reply.status != 200 || !reply.complete) ++failed;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return failed;
}

std::string whole_stream(int chunks) {
  std::string text;
  for (int i = 0; i < chunks; ++i) text += FakeNode::chunk(i);
  return text + "data: [DONE]\n\n";
}

}  // namespace lmdeploy::testing
