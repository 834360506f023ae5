#include "lmdeploy/hub/names.h"

#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

constexpr size_t kMaxIdPart = 96;
constexpr size_t kMaxName = 255;  // of one part of a path, as file systems have it
constexpr size_t kMaxPath = 1024;

bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

/// Letters, digits and "-_.", which neither begins nor ends it; no ".." and no "--", the cache's separator.
bool is_id_part(std::string_view part) {
  if (part.empty() || part.size() > kMaxIdPart) return false;
  if (is_one_of(part.front(), "-.") || is_one_of(part.back(), "-.")) return false;
  if (part.find("--") != std::string_view::npos || part.find("..") != std::string_view::npos) return false;
  return std::all_of(part.begin(), part.end(), [](char c) { return is_alnum(c) || is_one_of(c, "-_."); });
}

bool is_plain_part(std::string_view part) {
  return !part.empty() && part.size() <= kMaxName && part != "." && part != "..";
}

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

}  // namespace

std::optional<ModelId> parse_model_id(std::string_view text) {
  const size_t first = text.find('/');
  if (first == std::string_view::npos) return std::nullopt;
  const size_t second = text.find('/', first + 1);
  const bool names_file = second != std::string_view::npos;
  ModelId id;
  id.org = text.substr(0, first);
  id.name = text.substr(first + 1, names_file ? second - first - 1 : std::string_view::npos);
  if (names_file) id.file = text.substr(second + 1);
  if (!is_id_part(id.org) || !is_id_part(id.name) || id.name.ends_with(".git")) return std::nullopt;
  if (names_file)
    return id.file.ends_with(".gguf") && is_safe_path(id.file) ? std::optional(id) : std::nullopt;
  // A file's name rather than a model's: someone's local path that is not there.
  for (const std::string_view extension : {".gguf", ".safetensors", ".json", ".bin"})
    if (id.name.ends_with(extension)) return std::nullopt;
  return id;
}

bool is_commit(std::string_view revision) {
  return revision.size() == 40 && std::all_of(revision.begin(), revision.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

void check_revision(std::string_view revision) {
  const bool fits =
      is_safe_path(revision) && revision.front() != '-' &&
      std::none_of(revision.begin(), revision.end(), [](char c) { return is_one_of(c, " ~^:?*[\\"); });
  if (!fits)
    throw Error(ErrorCode::kInvalidArgument,
                cat("revision \"", shown(revision), "\" can be neither a branch, a tag nor a commit"));
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPath || !is_utf8(path) || has_control_character(path)) return false;
  if (path.find('\\') != std::string_view::npos) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (!is_plain_part(path.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

bool is_safe_name(std::string_view name) {
  constexpr size_t kLongest = 128;  // leaves room for ".incomplete"
  return !name.empty() && name.size() <= kLongest && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_alnum(c) || is_one_of(c, "-_."); });
}

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 300;
  std::string line = repair_utf8(text.substr(0, kLongest));
  for (char& c : line)
    if (has_control_character({&c, 1})) c = ' ';
  return line;
}

std::string url_quote(std::string_view text, std::string_view keep) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string quoted;
  for (const char c : text) {
    if (is_alnum(c) || is_one_of(c, "-._~") || is_one_of(c, keep)) {
      quoted += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    quoted += '%';
    quoted += kDigits[byte >> 4];
    quoted += kDigits[byte & 15];
  }
  return quoted;
}

}  // namespace lmdeploy
