// What one call to fetch_model() uses for all its requests and files: client, pauses, progress.
#pragma once

#include <chrono>
#include <string>

#include "lmdeploy/hub/http_client.h"
#include "lmdeploy/hub/hub.h"
#include "lmdeploy/hub/partial_file.h"
#include "lmdeploy/hub/replies.h"

namespace lmdeploy {

class Transfer {
 public:
  /// `secret`: header line for the hub's own host.
  Transfer(const HubConfig& config, const HubHooks& hooks, std::string secret);

  /// The answer, after as many tries as are worth it; `body` takes the text of a 2xx reply.
  HttpReply get(const std::string& url, std::string& body);
  /// Headers only; the answer of the URL's own host when it redirects to another one and names the file's
  /// etag.
  HttpReply head(const std::string& url);
  /// Brings `file` to `target` by way of `partial`, which is kept when that fails. Throws Error.
  void download(const RemoteFile& file, const std::string& partial, const std::string& target,
                const Asked& asked);

  /// For the progress: `file` will have to be downloaded; it is here already, by others for instance.
  void expect(const RemoteFile& file) { status_.total_bytes += file.size; }
  void skip(const RemoteFile& file);
  /// A moment of waiting, which the caller's progress function may end by throwing.
  void pause(std::chrono::milliseconds time);

 private:
  void report();
  HttpReply ask(const HttpRequest& request, std::string* body);
  void fill(PartialFile& partial, const RemoteFile& file, const Asked& asked);
  HttpReply send_rest(PartialFile& partial, const RemoteFile& file);
  void take(PartialFile& partial, const RemoteFile& file, std::string_view bytes);

  const HubConfig& config_;
  const HubHooks& hooks_;
  std::string secret_;
  HubStatus status_;
  int64_t finished_bytes_ = 0;  // of whole files
  HttpClient client_;
};

}  // namespace lmdeploy
