// TLS for tests: a certificate of one's own and a client that trusts it.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "raw_client.h"

namespace lmdeploy::testing {

struct SelfSigned {
  std::string certificate, key;  // files
};
/// Of "localhost" and 127.0.0.1, made by the openssl program in the test's folder.
SelfSigned make_self_signed(const std::string& name);

class TlsClient {
 public:
  TlsClient(int port, const std::string& trusted);
  bool connected() const { return connected_; }
  void send(const std::string& bytes);
  std::string read_to_end();
  /// Whether the server said that it is the end.
  bool ended_orderly() const { return ended_orderly_; }
  RawClient& socket() { return socket_; }

 private:
  RawClient socket_;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  bool connected_ = false, ended_orderly_ = false;
};

}  // namespace lmdeploy::testing
