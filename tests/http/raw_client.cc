#include "raw_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace lmdeploy::testing {
namespace {

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::map<std::string, std::string> parse_fields(const std::string& head) {
  std::map<std::string, std::string> fields;
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at);
    const size_t colon = head.find(": ", at);
    if (colon < end) fields[lower(head.substr(at, colon - at))] = head.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  return fields;
}

}  // namespace

RawListener::RawListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(fd_, 64), 0);
  ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
}

RawListener::~RawListener() { ::close(fd_); }

std::string RawListener::url() const { return "http://127.0.0.1:" + std::to_string(port_); }

RawClient RawListener::accept() {
  pollfd state{fd_, POLLIN, 0};
  EXPECT_GT(::poll(&state, 1, 20'000), 0) << "nobody connects";
  return {RawClient::Connected::kYes, ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)};
}

RawClient::RawClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in address = loopback(port);
  EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
}

RawClient::~RawClient() { close(); }

RawClient::RawClient(RawClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), unread_(std::move(other.unread_)) {}

void RawClient::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawClient::close_sending() { ::shutdown(fd_, SHUT_WR); }

void RawClient::reset() {
  const linger now{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close();
}

bool RawClient::wait_for(short events) {
  pollfd state{fd_, events, 0};
  if (::poll(&state, 1, 20'000) > 0) return true;
  ADD_FAILURE() << "nothing happens on the connection";
  return false;
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!wait_for(POLLOUT)) return false;
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EAGAIN) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::read_more() {
  if (!wait_for(POLLIN)) return false;
  char bytes[65536];
  const ssize_t size = ::recv(fd_, bytes, sizeof(bytes), 0);
  if (size <= 0) return false;
  unread_.append(bytes, static_cast<size_t>(size));
  return true;
}

std::string RawClient::read_some() {
  if (unread_.empty()) read_more();
  return std::exchange(unread_, {});
}

std::string RawClient::read_to_end() {
  while (read_more()) {
  }
  return std::exchange(unread_, {});
}

std::string RawClient::take_until(std::string_view end) {
  while (unread_.find(end) == std::string::npos)
    if (!read_more()) return {};
  const size_t size = unread_.find(end) + end.size();
  std::string taken = unread_.substr(0, size);
  unread_.erase(0, size);
  return taken;
}

bool RawClient::take_bytes(size_t count, std::string& out) {
  while (unread_.size() < count)
    if (!read_more()) break;
  const size_t size = std::min(count, unread_.size());
  out.append(unread_, 0, size);
  unread_.erase(0, size);
  return size == count;
}

bool RawClient::take_chunks(std::string& out) {
  while (true) {
    const std::string line = take_until("\r\n");
    if (line.empty()) return false;
    const size_t size = std::stoul(line, nullptr, 16);
    if (!take_bytes(size, out) || take_until("\r\n") != "\r\n") return false;
    if (size == 0) return true;
  }
}

RawReply RawClient::read_reply(bool to_head_request) {
  RawReply reply;
  reply.head = take_until("\r\n\r\n");
  if (reply.head.empty()) return reply;
  reply.status = std::stoi(reply.head.substr(reply.head.find(' ') + 1));
  reply.headers = parse_fields(reply.head);
  if (to_head_request || reply.status == 204 || reply.status == 304 || reply.status < 200) {
    reply.complete = true;
  } else if (reply.headers.count("transfer-encoding") > 0) {
    reply.complete = take_chunks(reply.body);
  } else if (const auto length = reply.headers.find("content-length"); length != reply.headers.end()) {
    reply.complete = take_bytes(std::stoul(length->second), reply.body);
  } else {
    reply.body = std::exchange(unread_, {}) + read_to_end();
    reply.complete = true;
  }
  return reply;
}

RawReply RawClient::get(const std::string& target, const std::string& headers) {
  send("GET " + target + " HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n");
  return read_reply();
}

RawReply RawClient::post(const std::string& target, const std::string& body, const std::string& headers) {
  send("POST " + target + " HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
       headers + "\r\n" + body);
  return read_reply();
}

int num_open_files() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(files), end(files)));
}

}  // namespace lmdeploy::testing
