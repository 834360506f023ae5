// Servers behind TLS whose certificate the environment names, as SSL_CERT_FILE and SSL_CERT_DIR do.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "../http/tls_client.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/http/server.h"
#include "program_run.h"

namespace lmdeploy::testing {
namespace {

/// On localhost; it has the model "m" and refuses all else with 401.
class TlsServer {
 public:
  explicit TlsServer(const SelfSigned& files) : server_(options(files), handle, refuse) {}
  std::string url() const { return cat("https://localhost:", server_.port()); }

 private:
  static http::ServerOptions options(const SelfSigned& files) {
    http::ServerOptions options;
    options.address = "127.0.0.1";
    options.tls = http::TlsFiles{files.certificate, files.key};
    return options;
  }
  static http::Response refuse(const http::Request&, int status, const std::string& message) {
    http::Response response;
    response.status = status;
    response.body = "{\"message\": \"" + message + "\"}";
    return response;
  }
  static http::Task<> handle(http::Exchange& exchange) {
    const http::Request& request = exchange.request();
    http::Response response = refuse(request, 401, "who are you");
    if (request.url.path == "/v1/models") {
      response.status = 200;
      response.body = R"({"data": [{"id": "m"}]})";
    }
    co_await exchange.respond(std::move(response));
  }

  http::Server server_;
};

/// Each way to trust the certificate: one line of the environment.
std::vector<std::string> ways_to_trust(const SelfSigned& files) {
  const std::string folder = ::testing::TempDir() + "trusted";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(files.certificate, folder + "/own.pem",
                             std::filesystem::copy_options::overwrite_existing);
  const std::string command = "openssl rehash '" + folder + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT(concurrency-mt-unsafe)
  return {"SSL_CERT_FILE=" + files.certificate, "SSL_CERT_DIR=" + folder};
}

TEST(Certificates, TheTerminalClientTrustsThoseOfTheEnvironment) {
  const SelfSigned files = make_self_signed("client");
  const TlsServer server(files);
  const auto talk = [&](const std::string& variable) {
    ProgramRun run({"serve", "api_client", server.url()}, ProgramRun::Input::kPipe, {variable});
    run.type("hi\n\nexit\n\n");
    run.end_input();
    run.finish();
    return run.err();
  };
  EXPECT_NE(talk("SSL_CERT_FILE=").find("certificate"), std::string::npos);
  for (const std::string& variable : ways_to_trust(files)) {
    const std::string err = talk(variable);
    EXPECT_NE(err.find("status 401: who are you"), std::string::npos) << variable << ": " << err;
  }
}

TEST(Certificates, TheProxyTrustsThoseOfTheEnvironment) {
  const SelfSigned files = make_self_signed("node");
  const TlsServer server(files);
  const auto add_node = [&](const std::string& variable) {
    ProgramRun run(
        {"serve", "proxy", "--server-name", "127.0.0.1", "--server-port", "0", "--disable-cache-status"},
        ProgramRun::Input::kClosed, {variable});
    run.expect("The proxy listens on http://127.0.0.1:");
    run.expect("\n");
    const int port = std::stoi(run.out().substr(run.out().rfind(':') + 1));
    return RawClient(port).post("/nodes/add", "{\"url\": \"" + server.url() + "\"}").body;
  };
  EXPECT_NE(add_node("SSL_CERT_FILE=").find("Failed to add"), std::string::npos);
  for (const std::string& variable : ways_to_trust(files))
    EXPECT_EQ(add_node(variable), "\"Added successfully\"") << variable;
}

}  // namespace
}  // namespace lmdeploy::testing
