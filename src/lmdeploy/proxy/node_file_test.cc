#include "lmdeploy/proxy/node_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lmdeploy/core/expect_error.h"

namespace lmdeploy::proxy {
namespace {

std::string path_of(const char* name) {
  const std::string path = testing::TempDir() + "proxy/" + name;
  std::filesystem::remove(path);
  return path;
}

std::string file_with(const std::string& text) {
  const std::string path = path_of("given.json");
  std::filesystem::create_directories(testing::TempDir() + "proxy");
  std::ofstream(path) << text;
  return path;
}

TEST(NodeFile, RoundTrip) {
  NodeTable table(Strategy::kRandom, 1);
  NodeStatus status;
  status.models = {"a", "b \"\xe4\xbd\xa0\""};
  status.latency = {0.25, 1.5};
  status.speed = 120.5;
  table.add("http://one:8000", status);
  table.add("https://two", {});
  const auto busy = table.dispatch({"a"}, {});
  const std::string path = path_of("folder/nodes.json");
  write_node_file(path, table.nodes());
  const auto nodes = read_node_file(path);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].first, "http://one:8000");
  EXPECT_EQ(nodes[0].second.models, status.models);
  EXPECT_EQ(nodes[0].second.latency, status.latency);
  EXPECT_EQ(nodes[0].second.speed, status.speed);
  EXPECT_EQ(nodes[0].second.unfinished, 0);  // what was in flight is not any more
  EXPECT_FALSE(nodes[1].second.speed);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find(R"("http://one:8000":"{\"models\":[)"), std::string::npos) << text;
}

TEST(NodeFile, NoneIsNoNodes) { EXPECT_TRUE(read_node_file(path_of("none.json")).empty()); }

TEST(NodeFile, OlderVersions) {
  const auto nodes = read_node_file(file_with(
      R"({"http://a:1": {"models": ["m"], "unfinished": 7, "latency": [], "speed": null, "role": 1}})"));
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].second.unfinished, 0);
}

TEST(NodeFile, BadInput) {
  const auto refuses = [](const std::string& text, std::vector<std::string> words) {
    const std::string path = file_with(text);
    words.push_back(path);
    expect_error(ErrorCode::kInvalidData, words, [&] { read_node_file(path); });
  };
  refuses("", {});
  refuses("[1]", {"an array", "expected an object"});
  refuses(R"({"http://a": "{"})", {"node \"http://a\""});
  refuses(R"({"http://a": 3})", {"node \"http://a\"", "an integer"});
  refuses(R"({"http://a": {"models": "m"}})", {"\"models\" is a string"});
  refuses(R"({"http://a": {"models": [1]}})", {"\"models\""});
  for (const char* speed : {"0", "-1", "\"fast\"", "1e999"})
    refuses(std::string(R"({"http://a": {"speed": )") + speed + "}}", {});
  refuses(R"({"http://a": {"latency": [-1]}})", {"\"latency\""});
  refuses(R"({"http://a": {"role": "Prefill"}})", {"\"role\" is \"Prefill\"", "Hybrid"});
  expect_error(ErrorCode::kInvalidArgument, {"no-url"},
               [] { read_node_file(file_with(R"({"no-url": {}})")); });
  expect_error(ErrorCode::kIo, {"cannot write /proc/x"}, [] { write_node_file("/proc/x", {}); });
}

TEST(NodeTable, WhoGetsARequest) {
  NodeTable table(Strategy::kMinExpectedLatency, 1);
  NodeStatus status;
  status.models = {"m"};
  table.add("http://a", status);
  table.add("http://b", status);
  status.models = {"other"};
  table.add("http://c", status);
  EXPECT_EQ(table.dispatch({"nobody's"}, {}), nullptr);
  auto first = table.dispatch({"m"}, {});
  auto second = table.dispatch({"m"}, {first->id()});
  EXPECT_NE(first->url(), second->url());
  EXPECT_EQ(table.dispatch({"m"}, {first->id(), second->id()}), nullptr);
  first->fail();  // it is out, but taken when nobody else is left
  const std::string bad = first->url(), good = second->url();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(table.dispatch({"m"}, {})->url(), good);
  EXPECT_EQ(table.dispatch({"m"}, {second->id()})->url(), bad);
  table.set_up(first->id(), true);
  EXPECT_EQ(table.dispatch({"m"}, {second->id()})->url(), bad);
  // A node removed and added again is another one: what was in flight does not count for it.
  table.remove(good);
  status.models = {"m"};
  table.add(good, status);
  second->finish();
  second.reset();
  first.reset();
  for (const Node& node : table.nodes()) {
    EXPECT_EQ(node.status.unfinished, 0);
    EXPECT_TRUE(node.status.latency.empty());
  }
}

TEST(NodeTable, TheLast15DurationsAreKept) {
  NodeTable table(Strategy::kRandom, 1);
  NodeStatus status;
  status.models = {"m"};
  table.add("http://a", status);
  for (int i = 0; i < 40; ++i) table.dispatch({"m"}, {})->finish();
  EXPECT_EQ(table.nodes()[0].status.latency.size(), 15u);
  EXPECT_EQ(table.nodes()[0].num_answered, 40);
}

}  // namespace
}  // namespace lmdeploy::proxy
