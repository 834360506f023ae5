#include "lmdeploy/hub/config.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTokenFile = 64 << 10;

/// 1, ON, YES or TRUE in any case, as huggingface_hub has it.
bool is_true(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string first_of(const Variable& variable, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (std::string value = variable(name); !value.empty()) return value;
  return "";
}

/// "~/x" is below the user's home.
fs::path expand(const Variable& variable, const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return fs::path(variable("HOME")) / path.substr(std::min<size_t>(2, path.size()));
}

fs::path user_cache(const Variable& variable) {
  const std::string cache = variable("XDG_CACHE_HOME");
  return expand(variable, cache.empty() ? "~/.cache" : cache);
}

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string without_slash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

/// It goes into a header line.
std::string checked_token(const std::string& raw, const std::string& where) {
  const std::string token = trimmed(raw);
  const bool fits =
      std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7F; });
  if (!fits)
    throw Error(ErrorCode::kInvalidArgument,
                cat(where, ": the token has a space or another character that no token has"));
  return token;
}

std::string hugging_face_token(const Variable& variable, const fs::path& home) {
  if (is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return "";
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (std::string token = checked_token(variable(name), name); !token.empty()) return token;
  const std::string given = variable("HF_TOKEN_PATH");
  const fs::path file = given.empty() ? home / "token" : expand(variable, given);
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return "";
  return checked_token(read_file(file.string(), kMaxTokenFile), file.string());
}

HubConfig hugging_face_config(const Variable& variable) {
  const std::string given_home = variable("HF_HOME");
  const fs::path home =
      given_home.empty() ? user_cache(variable) / "huggingface" : expand(variable, given_home);
  const std::string given_cache = first_of(variable, {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  HubConfig config;
  if (const std::string endpoint = without_slash(variable("HF_ENDPOINT")); !endpoint.empty())
    config.endpoint = endpoint;
  config.cache_dir = (given_cache.empty() ? home / "hub" : expand(variable, given_cache)).string();
  config.token = hugging_face_token(variable, home);
  return config;
}

HubConfig modelscope_config(const Variable& variable) {
  HubConfig config;
  config.kind = HubKind::kModelScope;
  const std::string domain = without_slash(variable("MODELSCOPE_DOMAIN"));
  config.endpoint = domain.empty()                            ? "https://modelscope.cn"
                    : domain.find("://") == std::string::npos ? "https://" + domain
                                                              : domain;
  // This one does not follow XDG_CACHE_HOME.
  const std::string cache = variable("MODELSCOPE_CACHE");
  config.cache_dir = expand(variable, cache.empty() ? "~/.cache/modelscope/hub" : cache).string();
  config.token = checked_token(variable("MODELSCOPE_API_TOKEN"), "MODELSCOPE_API_TOKEN");
  return config;
}

int whole_seconds(const std::string& text, int fallback) {
  int seconds = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), seconds);
  return result.ec == std::errc() && seconds > 0 ? seconds : fallback;
}

}  // namespace

HubConfig hub_config(const Variable& variable) {
  HubConfig config = is_true(variable("LMDEPLOY_USE_MODELSCOPE")) ? modelscope_config(variable)
                                                                  : hugging_face_config(variable);
  if (is_true(variable("LMDEPLOY_USE_OPENMIND_HUB"))) config.kind = HubKind::kOpenMind;
  config.offline = is_true(first_of(variable, {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}));
  config.patience.stall_timeout_s =
      whole_seconds(variable("HF_HUB_DOWNLOAD_TIMEOUT"), config.patience.stall_timeout_s);
  config.certificates = hub_certificates(variable);
  return config;
}

HubCertificates hub_certificates(const Variable& variable) {
  return {variable("SSL_CERT_FILE"), variable("SSL_CERT_DIR")};
}

std::string_view token_variable(HubKind kind) {
  return kind == HubKind::kModelScope ? "MODELSCOPE_API_TOKEN" : "HF_TOKEN";
}

std::string_view default_revision(HubKind kind) { return kind == HubKind::kModelScope ? "master" : "main"; }

}  // namespace lmdeploy
