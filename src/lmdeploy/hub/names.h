// What models, revisions and files may be called. Names of a server become paths only after these checks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lmdeploy {

/// "org/name", or "org/name/folder/file.gguf" for one file of a repository.
struct ModelId {
  std::string org, name;
  std::string file;  // a .gguf of the repository; empty: whatever the repository holds

  std::string repository() const { return org + "/" + name; }
};

/// Nothing for what cannot be a model of a hub, such as "/a/b", "./a", "a", "a/b.gguf", "https://...".
std::optional<ModelId> parse_model_id(std::string_view text);

/// 40 lower-case hexadecimal digits: a commit, which never changes.
bool is_commit(std::string_view revision);
/// Throws Error(kInvalidArgument) for what can be neither branch, tag nor commit (and would lead out of a
/// folder).
void check_revision(std::string_view revision);
/// A relative path of plain names: no "..", no empty part, no control character, nothing longer than a file
/// system takes.
bool is_safe_path(std::string_view path);
/// One name without slashes that is no hidden file: what an ETag must be to name a file.
bool is_safe_name(std::string_view name);

/// A server's words for a message: one short line without control characters.
std::string shown(std::string_view text);

/// Percent-encoded for a URL; `keep` stays as it is beside letters, digits and "-._~".
std::string url_quote(std::string_view text, std::string_view keep = "");

}  // namespace lmdeploy
