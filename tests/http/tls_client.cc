#include "tls_client.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lmdeploy::testing {

SelfSigned make_self_signed(const std::string& name) {
  const std::string base = ::testing::TempDir() + name;
  const SelfSigned files{base + ".crt", base + ".key"};
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
      " -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout '" +
      files.key + "' -out '" + files.certificate + "' 2>/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << "the program openssl is needed: " << command;
  return files;
}

TlsClient::TlsClient(int port, const std::string& trusted)
    : socket_(port), context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free), ssl_(nullptr, SSL_free) {
  SSL_CTX_load_verify_locations(context_.get(), trusted.c_str(), nullptr);
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  ssl_.reset(SSL_new(context_.get()));
  SSL_set_fd(ssl_.get(), socket_.fd());
  SSL_set1_host(ssl_.get(), "localhost");
  connected_ = SSL_connect(ssl_.get()) == 1;
}

void TlsClient::send(const std::string& bytes) {
  EXPECT_EQ(SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())),
            static_cast<int>(bytes.size()));
}

std::string TlsClient::read_to_end() {
  std::string got;
  char bytes[16384];
  int size = 0;
  while ((size = SSL_read(ssl_.get(), bytes, sizeof(bytes))) > 0)
    got.append(bytes, static_cast<size_t>(size));
  ended_orderly_ = SSL_get_error(ssl_.get(), size) == SSL_ERROR_ZERO_RETURN;
  return got;
}

}  // namespace lmdeploy::testing
