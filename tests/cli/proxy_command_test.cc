// `lmdeploy serve proxy` as a program.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "../http/raw_client.h"
#include "program_run.h"

namespace lmdeploy::testing {
namespace {

/// Started on a free port of 127.0.0.1.
class Running {
 public:
  explicit Running(const std::vector<std::string>& flags, const std::vector<std::string>& environment = {}) {
    std::vector<std::string> arguments = {"serve",     "proxy",         "--server_name",
                                          "127.0.0.1", "--server_port", "0"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    run.emplace(arguments, ProgramRun::Input::kClosed, environment);
    run->expect("The proxy listens on http");
    run->expect("\n");
    port = std::stoi(run->out().substr(run->out().rfind(':') + 1));
  }
  RawClient connect() const { return RawClient(port); }

  std::optional<ProgramRun> run;
  int port = 0;
};

struct Ended {
  int code;
  std::string out, err;
};
Ended run_to_end(std::vector<std::string> flags, const std::vector<std::string>& environment = {}) {
  flags.insert(flags.begin(), {"serve", "proxy"});
  ProgramRun run(flags, ProgramRun::Input::kClosed, environment);
  const int code = run.finish();
  return {code, run.out(), run.err()};
}

TEST(ProxyCommand, F74_SignalsEndIt) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, {SIGTERM, 0}}) {
    Running proxy({"--disable-cache-status"});
    RawClient idle = proxy.connect();
    EXPECT_EQ(idle.get("/nodes/status").body, "{}");
    proxy.run->send_signal(signal);
    EXPECT_EQ(idle.read_some(), "");
    EXPECT_EQ(proxy.run->finish(), code);
    EXPECT_EQ(proxy.run->err(), "");
  }
}

/// A request that never ends: the first signal waits for it, the second does not; nor does a timeout.
TEST(ProxyCommand, F74_TheSecondSignalDoesNotWait) {
  for (const bool waits : {true, false}) {
    RawListener node;
    Running proxy({"--disable-cache-status", "--shutdown-timeout", waits ? "3000" : "0"});
    EXPECT_EQ(proxy.connect()
                  .post("/nodes/add", "{\"url\": \"" + node.url() + "\", \"status\": {\"models\": [\"m\"]}}")
                  .status,
              200);
    RawClient idle = proxy.connect(), client = proxy.connect();
    EXPECT_EQ(idle.get("/v1/models").status, 200);
    client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 14\r\n\r\n{\"model\": \"m\"}");
    std::vector<RawClient> connections;  // the request, and probes before it
    do connections.push_back(node.accept());
    while (connections.back().read_head().rfind("POST", 0) != 0);
    proxy.run->send_signal(SIGTERM);
    EXPECT_EQ(idle.read_some(), "");
    if (waits) proxy.run->send_signal(SIGTERM);
    EXPECT_EQ(proxy.run->finish(), waits ? 143 : 0);
    EXPECT_EQ(proxy.run->err().find("--shutdown-timeout") != std::string::npos, !waits) << proxy.run->err();
  }
}

TEST(ProxyCommand, KeepsItsNodesWhereItShould) {
  const std::string folder = ::testing::TempDir() + "proxy_state";
  std::filesystem::remove_all(folder);
  const std::string node = R"({"url": "http://127.0.0.1:1", "status": {"models": ["m"]}})";
  for (const bool named : {false, true}) {
    const std::vector<std::string> flags =
        named ? std::vector<std::string>{"--config-path", folder + "/mine.json"} : std::vector<std::string>{};
    const std::vector<std::string> environment = {"XDG_STATE_HOME=" + folder};
    {
      Running proxy(flags, environment);
      EXPECT_EQ(proxy.connect().get("/nodes/status").body, "{}");
      EXPECT_EQ(proxy.connect().post("/nodes/add", node).body, "\"Added successfully\"");
      proxy.run->send_signal(SIGTERM);
      EXPECT_EQ(proxy.run->finish(), 0);
    }
    Running again(flags, environment);
    EXPECT_NE(again.connect().get("/nodes/status").body.find("http://127.0.0.1:1"), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::exists(folder + "/lmdeploy/proxy_config.json"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/mine.json"));
}

TEST(ProxyCommand, KeysOnTheCommandLine) {
  Running proxy({"--disable-cache-status", "--api-keys", "k1", "k2"});
  EXPECT_EQ(proxy.connect().get("/v1/models").status, 401);
  EXPECT_EQ(proxy.connect().get("/v1/models", "Authorization: Bearer k2\r\n").status, 200);
}

TEST(ProxyCommand, BadInput) {
  const auto refuses = [](const std::vector<std::string>& flags, int code,
                          const std::vector<std::string>& words,
                          const std::vector<std::string>& environment = {}) {
    const Ended ended = run_to_end(flags, environment);
    EXPECT_EQ(ended.code, code) << ended.err;
    EXPECT_EQ(ended.out, "");
    for (const std::string& word : words) EXPECT_NE(ended.err.find(word), std::string::npos) << ended.err;
  };
  refuses({"--strategy", "fastest"}, 2, {"fastest", "random,min_expected_latency,min_observed_latency"});
  refuses({"--server-port", "65536"}, 2, {"65536"});
  refuses({"--no-such-flag"}, 2, {"--no-such-flag"});
  refuses({"--serving-strategy", "DistServe"}, 1, {"not supported yet: --serving-strategy DistServe"});
  refuses({"--migration-protocol", "NVLINK"}, 1, {"not supported yet"});
  refuses({"--dummy-prefill"}, 1, {"not supported yet: --dummy-prefill"});
  refuses({"--ssl"}, 1, {"--ssl", "SSL_CERTFILE"});
  refuses({"--ssl"}, 1, {"TLS certificate", "/no/such.crt"},
          {"SSL_CERTFILE=/no/such.crt", "SSL_KEYFILE=/no/such.key"});
  refuses({"--log-level", "loud"}, 1, {"--log-level", "loud"});
  refuses({"--server-name", "no.such.host.invalid"}, 1, {"cannot listen on no.such.host.invalid"});
  for (const char* value : {"x", "-1", "1.5", "99999999999999999999"})
    refuses({}, 1, {"AIOHTTP_TIMEOUT", value}, {std::string("AIOHTTP_TIMEOUT=") + value});
  refuses({}, 1, {"HEART_BEAT_EXPIRATION", "from 1"}, {"LMDEPLOY_CONTROLLER_HEART_BEAT_EXPIRATION=0"});
  RawListener busy;
  refuses(
      {"--server-name", "127.0.0.1", "--server-port", std::to_string(busy.port()), "--disable-cache-status"},
      1, {"port " + std::to_string(busy.port()), "another port"});
}

TEST(ProxyCommand, BrokenNodeFilesAreKeptAndNamed) {
  const std::string path = ::testing::TempDir() + "broken_nodes.json";
  std::ofstream(path) << "{";
  Running proxy({"--config-path", path});
  EXPECT_EQ(proxy.connect().get("/nodes/status").body, "{}");
  proxy.run->send_signal(SIGTERM);
  EXPECT_EQ(proxy.run->finish(), 0);
  EXPECT_NE(proxy.run->err().find(path + ".broken"), std::string::npos) << proxy.run->err();
}

}  // namespace
}  // namespace lmdeploy::testing
