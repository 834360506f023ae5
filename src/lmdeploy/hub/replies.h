// What hubs answer: lists of files, facts about a file, refusals. All of it is input from outside.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/hub/config.h"
#include "lmdeploy/hub/http_client.h"
#include "lmdeploy/hub/names.h"
#include "lmdeploy/hub/partial_file.h"

namespace lmdeploy {

struct Listing {
  std::string commit;
  std::vector<std::string> files;  // safe paths, each once
};

/// Body of GET /api/models/ID/revision/REVISION. Throws Error(kInvalidData) beginning with `where`.
Listing parse_listing(std::string_view body, std::string_view where);
/// Body of ModelScope's GET /api/v1/models/ID/repo/files. The URLs stay empty.
std::vector<RemoteFile> parse_modelscope_listing(std::string_view body, std::string_view where);

/// Size and etag in the headers of HEAD /ID/resolve/COMMIT/FILE, the redirects included. A hub says of a
/// large file where it lies in X-Linked-Size and X-Linked-Etag. Throws Error(kInvalidData).
RemoteFile parse_file_headers(const HttpReply& reply, const std::string& path);
/// Whether the headers name an etag at all.
bool has_etag(const HttpReply& reply);
/// `W/"x"` and `"x"` are x.
std::string normalize_etag(std::string_view etag);
/// First byte of "bytes 100-199/200"; -1 for anything else.
int64_t range_begin(std::string_view content_range);

/// One line: the address and what went wrong there.
std::string describe_failure(const HttpReply& reply);

/// What was asked for, for the message of a refusal.
struct Asked {
  ModelId id;
  std::string revision;
  std::string file;  // empty: the list of files
};
/// Throws for a reply that is not ok(): says why and what to do.
[[noreturn]] void throw_refusal(const HttpReply& reply, const Asked& asked, const HubConfig& config);

}  // namespace lmdeploy
