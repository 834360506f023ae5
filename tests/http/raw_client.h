// A client of plain sockets that sends what a test tells it, good and bad, and reads the answers.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace lmdeploy::testing {

struct RawReply {
  int status = 0;                              // 0: the connection ended before a whole head
  std::string head;                            // as it came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without its chunks' frames
  bool complete = false;                       // up to its length, last chunk or the connection's end
};

/// Every wait fails the test after 20 seconds.
class RawClient {
 public:
  explicit RawClient(int port);  // of 127.0.0.1
  enum class Connected { kYes };
  RawClient(Connected, int fd) : fd_(fd) {}
  ~RawClient();
  RawClient(RawClient&& other) noexcept;
  RawClient(const RawClient&) = delete;

  /// false: the server has closed.
  bool send(std::string_view bytes);
  /// What there is, at least one byte; empty: the server has closed or reset the connection.
  std::string read_some();
  std::string read_to_end();
  RawReply read_reply(bool to_head_request = false);
  /// read_reply() of a request without body.
  RawReply get(const std::string& target, const std::string& headers = "");
  RawReply post(const std::string& target, const std::string& body, const std::string& headers = "");

  /// A request's head, for a RawListener.
  std::string read_head() { return take_until("\r\n\r\n"); }

  void close_sending();
  /// With a reset instead of an orderly end.
  void reset();
  void close();
  int fd() const { return fd_; }

 private:
  bool wait_for(short events);
  bool read_more();
  /// Up to and with `end`; empty: the connection ended before.
  std::string take_until(std::string_view end);
  bool take_bytes(size_t count, std::string& out);
  bool take_chunks(std::string& out);

  int fd_ = -1;
  std::string unread_;
};

/// The other way round: a server that reads with a RawClient what comes, and answers what a test says.
class RawListener {
 public:
  RawListener();
  ~RawListener();
  RawListener(const RawListener&) = delete;
  int port() const { return port_; }
  std::string url() const;  // "http://127.0.0.1:PORT"
  RawClient accept();

 private:
  int fd_, port_ = 0;
};

/// File handles that this process has open.
int num_open_files();

}  // namespace lmdeploy::testing
