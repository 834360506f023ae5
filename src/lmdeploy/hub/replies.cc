#include "lmdeploy/hub/replies.h"

#include <charconv>
#include <limits>
#include <set>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"

namespace lmdeploy {
namespace {

constexpr size_t kMaxFiles = 100'000;

[[noreturn]] void bad_reply(std::string_view where, const std::string& what) {
  throw Error(ErrorCode::kInvalidData, cat(where, ": the hub's answer ", what));
}

const Json* find(const Json& value, std::string_view key) {
  const JsonObject* object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(key);
}

/// Throws unless there is a text under `key`.
std::string text_of(const Json& value, std::string_view key, std::string_view where) {
  const Json* text = find(value, key);
  if (text == nullptr || !text->is_string())
    bad_reply(where, cat("has no text \"", key, "\" where one belongs"));
  return std::string(text->get_string());
}

const JsonArray& array_of(const Json* value, std::string_view key, std::string_view where) {
  if (value == nullptr || !value->is_array()) bad_reply(where, cat("has no list \"", key, "\""));
  const JsonArray& array = value->get_array();
  if (array.size() > kMaxFiles)
    bad_reply(where, cat("lists ", array.size(), " files; a model has at most ", kMaxFiles));
  return array;
}

std::string checked_path(std::string path, std::string_view where) {
  if (!is_safe_path(path))
    bad_reply(where,
              cat("lists a file \"", shown(path), "\", which is no name inside the repository's folder"));
  return path;
}

/// -1 for what is no size.
int64_t parse_size(std::string_view text) {
  int64_t size = -1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), size);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && size >= 0 ? size : -1;
}

int64_t size_of(const Json& file, std::string_view where) {
  const Json* size = find(file, "Size");
  boost::system::error_code error;
  const int64_t bytes = size == nullptr ? -1 : size->to_number<int64_t>(error);
  if (error || bytes < 0) bad_reply(where, "has no size for a file");
  return bytes;
}

/// Header of the last answer, else of the redirects before it.
std::string header_of(const HttpReply& reply, const std::string& name) {
  if (const auto value = reply.header(name); !value.empty()) return std::string(value);
  for (auto hop = reply.redirects.rbegin(); hop != reply.redirects.rend(); ++hop)
    if (const auto value = hop->header(name); !value.empty()) return std::string(value);
  return "";
}

/// Without the signature that storage addresses carry.
std::string plain_url(const std::string& url) { return shown(url.substr(0, url.find('?'))); }

std::string named(const Asked& asked) {
  return cat("model ", asked.id.repository(), ", revision ", asked.revision,
             asked.file.empty() ? "" : cat(", file ", asked.file));
}

std::string server_words(const HttpReply& reply) {
  const std::string_view words = reply.header("x-error-message");
  return words.empty() ? "" : cat(" (", shown(words), ")");
}

[[noreturn]] void throw_not_found(const HttpReply& reply, const Asked& asked, const HubConfig& config) {
  const bool has_model = reply.header("x-error-code") == "RevisionNotFound";
  throw Error(
      ErrorCode::kNotFound,
      cat(named(asked), ": ", config.endpoint,
          has_model ? " has the model, but no such branch, tag or commit"
                    : " has no such model, revision or file",
          server_words(reply), ". If a local folder is meant: there is none of that name here; write ./",
          asked.id.repository(), " or its whole path"));
}

[[noreturn]] void throw_no_access(const HttpReply& reply, const Asked& asked, const HubConfig& config) {
  const std::string_view variable = token_variable(config.kind);
  const bool gated = reply.header("x-error-code") == "GatedRepo";
  const std::string why = gated ? cat("the model is gated: accept its conditions on ", config.endpoint, "/",
                                      asked.id.repository())
                                : "the model is private or gated, or there is none of that name";
  const std::string token = config.token.empty()
                                ? cat("set ", variable, " to an access token of an account that may read it")
                                : cat("the token of ", variable, " or the token file does not open it");
  throw Error(ErrorCode::kIo, cat(named(asked), ": ", config.endpoint, " answers ", reply.status, ": ", why,
                                  "; ", token, server_words(reply)));
}

}  // namespace

Listing parse_listing(std::string_view body, std::string_view where) {
  const Json value = parse_json(body, where);
  Listing listing;
  listing.commit = text_of(value, "sha", where);
  if (!is_commit(listing.commit)) bad_reply(where, cat("names the commit \"", shown(listing.commit), "\""));
  std::set<std::string> seen;
  for (const Json& file : array_of(find(value, "siblings"), "siblings", where)) {
    std::string path = checked_path(text_of(file, "rfilename", where), where);
    if (seen.insert(path).second) listing.files.push_back(std::move(path));
  }
  return listing;
}

std::vector<RemoteFile> parse_modelscope_listing(std::string_view body, std::string_view where) {
  const Json value = parse_json(body, where);
  const Json* data = find(value, "Data");
  const Json* list = data == nullptr ? nullptr : find(*data, "Files");
  std::vector<RemoteFile> files;
  std::set<std::string> seen;
  for (const Json& file : array_of(list, "Files", where)) {
    if (text_of(file, "Type", where) != "blob") continue;
    RemoteFile remote;
    remote.path = checked_path(text_of(file, "Path", where), where);
    remote.size = size_of(file, where);
    if (const Json* hash = find(file, "Sha256"); hash != nullptr && hash->is_string())
      remote.etag = std::string(hash->get_string());
    if (digest_kind(remote.etag) != DigestKind::kSha256) remote.etag.clear();
    if (seen.insert(remote.path).second) files.push_back(std::move(remote));
  }
  return files;
}

bool has_etag(const HttpReply& reply) {
  return !header_of(reply, "x-linked-etag").empty() || !reply.header("etag").empty();
}

RemoteFile parse_file_headers(const HttpReply& reply, const std::string& path) {
  const std::string where = cat(plain_url(reply.url), " (", path, ")");
  RemoteFile file;
  file.path = path;
  const std::string linked_etag = header_of(reply, "x-linked-etag");
  file.etag = normalize_etag(linked_etag.empty() ? reply.header("etag") : linked_etag);
  if (!is_safe_name(file.etag))
    bad_reply(where, cat("has the ETag \"", shown(file.etag), "\", which is no name"));
  const std::string linked_size = header_of(reply, "x-linked-size");
  file.size = parse_size(linked_size.empty() ? reply.header("content-length") : linked_size);
  if (file.size < 0) bad_reply(where, "does not say how large the file is");
  return file;
}

std::string normalize_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return std::string(etag);
}

int64_t range_begin(std::string_view content_range) {
  constexpr std::string_view kUnit = "bytes ";
  if (!content_range.starts_with(kUnit)) return -1;
  content_range.remove_prefix(kUnit.size());
  return parse_size(content_range.substr(0, content_range.find('-')));
}

std::string describe_failure(const HttpReply& reply) {
  if (!reply.trouble.empty()) return cat(plain_url(reply.url), ": ", shown(reply.trouble));
  const std::string wait =
      reply.retry_after_s > 0 ? cat(", and asks to wait ", reply.retry_after_s, " s") : "";
  return cat(plain_url(reply.url), ": the server answers ", reply.status, wait);
}

void throw_refusal(const HttpReply& reply, const Asked& asked, const HubConfig& config) {
  if (reply.trouble.empty()) {
    if (reply.status == 404) throw_not_found(reply, asked, config);
    if (reply.status == 401 || reply.status == 403) throw_no_access(reply, asked, config);
  }
  throw Error(ErrorCode::kIo,
              cat("download ", named(asked), ": ", describe_failure(reply), server_words(reply)));
}

}  // namespace lmdeploy
