// The same server behind TLS.
#include <gtest/gtest.h>

#include <fstream>

#include "lmdeploy/core/expect_error.h"
#include "test_server.h"
#include "tls_client.h"

namespace lmdeploy::testing {
namespace {

http::ServerOptions tls_options(const SelfSigned& files) {
  http::ServerOptions options;
  options.tls = http::TlsFiles{files.certificate, files.key};
  return options;
}

TEST(Tls, ServesAndEndsOrderly) {
  const SelfSigned files = make_self_signed("serves");
  TestServer server(tls_options(files));
  TlsClient client(server.port(), files.certificate);
  ASSERT_TRUE(client.connected());
  client.send("GET /hello HTTP/1.1\r\n\r\nPOST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
  client.send("GET /stream?n=2 HTTP/1.0\r\n\r\n");  // its end is the end of the connection
  const std::string got = client.read_to_end();
  EXPECT_NE(got.find("hello"), std::string::npos) << got;
  EXPECT_NE(got.find("abc"), std::string::npos) << got;
  EXPECT_NE(got.find("piece 0\npiece 1\n"), std::string::npos) << got;
  EXPECT_TRUE(client.ended_orderly());
}

TEST(Tls, LargeBodiesAndRefusals) {
  const SelfSigned files = make_self_signed("large");
  http::ServerOptions options = tls_options(files);
  options.max_body_bytes = 1000;
  TestServer server(options);
  TlsClient client(server.port(), files.certificate);
  client.send("GET /big?bytes=3000000 HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string got = client.read_to_end();
  EXPECT_EQ(got.size() - got.find("\r\n\r\n") - 4, 3'000'000u);
  TlsClient other(server.port(), files.certificate);
  other.send("POST /echo HTTP/1.1\r\nContent-Length: 2000\r\n\r\n" + std::string(2000, 'x'));
  EXPECT_EQ(other.read_to_end().rfind("HTTP/1.1 413 ", 0), 0u);
}

TEST(Tls, WhoLeavesOrSpeaksPlainOrNotAtAllHarmsNobody) {
  const SelfSigned files = make_self_signed("leaves");
  TestServer server(tls_options(files));
  RawClient plain = server.connect();
  plain.send("GET /hello HTTP/1.1\r\n\r\n");
  plain.read_to_end();
  RawClient silent = server.connect();
  {
    TlsClient client(server.port(), files.certificate);
    client.send("GET /wait HTTP/1.1\r\n\r\n");
    server.await_waiting(1);
  }
  server.await_gone(1);
  server.server().stop();  // does not wait for the silent one's handshake
  EXPECT_EQ(silent.read_to_end(), "");
}

TEST(Tls, BadInput_Files) {
  const SelfSigned files = make_self_signed("one"), others = make_self_signed("two");
  const std::string empty = ::testing::TempDir() + "empty.pem";
  std::ofstream(empty).close();
  const auto start = [](const std::string& certificate, const std::string& key) {
    return [=] { TestServer server(tls_options({certificate, key})); };
  };
  expect_error(ErrorCode::kIo, {"TLS certificate", "/no/such.crt"}, start("/no/such.crt", files.key));
  expect_error(ErrorCode::kIo, {"TLS key", "/no/such.key"}, start(files.certificate, "/no/such.key"));
  expect_error(ErrorCode::kIo, {"TLS certificate", empty}, start(empty, files.key));
  expect_error(ErrorCode::kIo, {"TLS key", empty}, start(files.certificate, empty));
  expect_error(ErrorCode::kIo, {"TLS key", "mismatch"}, start(files.certificate, others.key));
}

}  // namespace
}  // namespace lmdeploy::testing
