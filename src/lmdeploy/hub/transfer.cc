#include "lmdeploy/hub/transfer.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/hub/retry.h"

namespace lmdeploy {
namespace {

constexpr size_t kMaxBody = size_t{64} << 20;  // of a list of files
constexpr std::chrono::milliseconds kSlice{50};

/// Bytes that do not go on where the last ones ended must not reach the file.
void begin_body(const HttpReply& reply, PartialFile& partial) {
  if (reply.status == 206) {
    const std::string_view range = reply.header("content-range");
    if (range_begin(range) != partial.size())
      throw Error(ErrorCode::kInvalidData, cat(describe_failure(reply), " with the range \"", shown(range),
                                               "\" when asked for bytes from ", partial.size(), " on"));
  } else if (partial.size() > 0) {
    partial.restart();  // the server does not do ranges
  }
}

}  // namespace

Transfer::Transfer(const HubConfig& config, const HubHooks& hooks, std::string secret)
    : config_(config),
      hooks_(hooks),
      secret_(std::move(secret)),
      client_(config.patience, config.certificates, [this] { report(); }) {}

void Transfer::report() {
  if (hooks_.progress) hooks_.progress(status_);
}

void Transfer::pause(std::chrono::milliseconds time) {
  report();
  if (hooks_.pause) return hooks_.pause(time);
  for (; time.count() > 0; time -= kSlice) {
    std::this_thread::sleep_for(std::min(time, kSlice));
    report();
  }
}

HttpReply Transfer::ask(const HttpRequest& request, std::string* body) {
  Retry retry(config_.patience, [this](auto time) { pause(time); });
  while (true) {
    if (body != nullptr) body->clear();
    HttpReply reply = client_.send(request, [&](const HttpReply& head, std::string_view bytes) {
      if (body == nullptr) return;
      if (body->size() + bytes.size() > kMaxBody)
        throw Error(ErrorCode::kInvalidData,
                    cat(describe_failure(head), " with more than ", kMaxBody, " bytes"));
      body->append(bytes);
    });
    if (!retry.again(reply)) return reply;
  }
}

HttpReply Transfer::get(const std::string& url, std::string& body) {
  return ask({.url = url, .secret = secret_}, &body);
}

HttpReply Transfer::head(const std::string& url) {
  HttpRequest request = {.url = url, .head = true, .secret = secret_, .stay = true};
  HttpReply reply = ask(request, nullptr);
  const bool goes_elsewhere = reply.status >= 300 && reply.status < 400;
  if (!goes_elsewhere || has_etag(reply)) return reply;
  request.stay = false;
  return ask(request, nullptr);
}

void Transfer::skip(const RemoteFile& file) {
  finished_bytes_ += file.size;
  status_.done_bytes = finished_bytes_;
}

void Transfer::take(PartialFile& partial, const RemoteFile& file, std::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) > file.size - partial.size()) {
    partial.restart();
    throw Error(ErrorCode::kInvalidData,
                cat(shown(file.url), ": more than the ", file.size, " bytes that the hub lists"));
  }
  partial.append(bytes);
  status_.done_bytes = finished_bytes_ + partial.size();
}

HttpReply Transfer::send_rest(PartialFile& partial, const RemoteFile& file) {
  bool begun = false;
  return client_.send({.url = file.url, .begin = partial.size(), .secret = secret_},
                      [&](const HttpReply& reply, std::string_view bytes) {
                        if (!std::exchange(begun, true)) begin_body(reply, partial);
                        take(partial, file, bytes);
                      });
}

void Transfer::fill(PartialFile& partial, const RemoteFile& file, const Asked& asked) {
  Retry retry(config_.patience, [this](auto time) { pause(time); });
  bool may_restart = true;
  int64_t furthest = partial.size();
  while (partial.size() < file.size) {
    HttpReply reply = send_rest(partial, file);
    if (partial.size() == file.size) return;
    if (reply.status == 416 && std::exchange(may_restart, false)) {  // another file's bytes, or another hub's
      partial.restart();
      continue;
    }
    if (reply.ok()) {  // says that this was all
      reply.trouble = cat("the connection ended after ", partial.size(), " of ", file.size, " bytes");
      reply.retryable = true;
    }
    const bool progress = partial.size() > furthest;
    furthest = std::max(furthest, partial.size());
    if (!retry.again(reply, progress)) throw_refusal(reply, asked, config_);
  }
}

void Transfer::download(const RemoteFile& file, const std::string& partial_path, const std::string& target,
                        const Asked& asked) {
  status_.file = file.path;
  PartialFile partial(partial_path, file);
  const bool resumed = partial.size() > 0;
  LMD_LOG(kInfo, "download ", asked.id.repository(), ", ", file.path, ": ", file.size, " bytes",
          resumed ? cat(", of which ", partial.size(), " are here") : "");
  fill(partial, file, asked);
  bool intact = partial.is_intact();
  if (!intact && resumed) {  // what was here before may be to blame
    partial.restart();
    fill(partial, file, asked);
    intact = partial.is_intact();
  }
  if (!intact) {
    partial.restart();
    throw Error(ErrorCode::kInvalidData, cat(shown(file.url), ": what came does not have the hash ",
                                             file.etag, " that the hub lists; try again later"));
  }
  partial.move_to(target);
  skip(file);
  report();
}

}  // namespace lmdeploy
