// Which hub, where its cache is, and how patient to be. The caller reads the environment, this room does not.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lmdeploy {

enum class HubKind { kHuggingFace, kModelScope, kOpenMind };

/// How long a server may keep us waiting.
struct HubPatience {
  int connect_timeout_ms = 10'000;
  int stall_timeout_s = 30;       // without a single byte
  int max_tries = 5;              // in a row without progress
  int first_pause_ms = 500;       // doubles with each try
  int longest_pause_ms = 60'000;  // a server that asks for more is not waited for
};

/// PEM files of certificates to trust, as SSL_CERT_FILE and SSL_CERT_DIR name them. Empty: the system's.
struct HubCertificates {
  std::string file, folder;
};

struct HubConfig {
  HubKind kind = HubKind::kHuggingFace;
  std::string endpoint = "https://huggingface.co";  // without a slash at the end
  std::string cache_dir;                            // Hugging Face: holds models--org--name folders
  std::string token;                                // empty: anonymous
  bool offline = false;                             // only what the cache has
  HubPatience patience;
  HubCertificates certificates;
};

/// The value of an environment variable; "" when it is not set.
using Variable = std::function<std::string(const char* name)>;

/// As huggingface_hub reads it: HF_ENDPOINT, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME,
/// HF_TOKEN, HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HUB_OFFLINE,
/// TRANSFORMERS_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT; SSL_CERT_FILE and SSL_CERT_DIR as OpenSSL. With
/// LMDEPLOY_USE_MODELSCOPE=true: MODELSCOPE_DOMAIN, MODELSCOPE_CACHE, MODELSCOPE_API_TOKEN.
HubConfig hub_config(const Variable& variable);
HubCertificates hub_certificates(const Variable& variable);

/// For messages: "HF_TOKEN", "HF_HUB_OFFLINE", ... of that hub.
std::string_view token_variable(HubKind kind);
std::string_view default_revision(HubKind kind);

}  // namespace lmdeploy
