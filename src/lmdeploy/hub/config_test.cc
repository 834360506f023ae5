#include "lmdeploy/hub/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

using Variables = std::map<std::string, std::string>;

HubConfig config_of(Variables variables) {
  variables.insert({"HOME", "/u"});
  return hub_config([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

TEST(HubConfig, Defaults) {
  const HubConfig config = config_of({});
  EXPECT_EQ(config.kind, HubKind::kHuggingFace);
  EXPECT_EQ(config.endpoint, "https://huggingface.co");
  EXPECT_EQ(config.cache_dir, "/u/.cache/huggingface/hub");
  EXPECT_EQ(config.token, "");
  EXPECT_FALSE(config.offline);
}

TEST(HubConfig, CacheFolders) {
  EXPECT_EQ(config_of({{"XDG_CACHE_HOME", "/x"}}).cache_dir, "/x/huggingface/hub");
  EXPECT_EQ(config_of({{"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "~/hf"}}).cache_dir, "/u/hf/hub");
  EXPECT_EQ(config_of({{"HF_HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}).cache_dir, "/old");
  EXPECT_EQ(config_of({{"HF_HUB_CACHE", "/c"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}).cache_dir, "/c");
}

TEST(HubConfig, Certificates) {
  const HubCertificates given =
      config_of({{"SSL_CERT_FILE", "/f.pem"}, {"SSL_CERT_DIR", "/certs"}}).certificates;
  EXPECT_EQ(given.file, "/f.pem");
  EXPECT_EQ(given.folder, "/certs");
  EXPECT_EQ(config_of({}).certificates.file, "");
}

TEST(HubConfig, Tokens) {
  EXPECT_EQ(config_of({{"HF_TOKEN", " a\n"}, {"HUGGING_FACE_HUB_TOKEN", "b"}}).token, "a");
  EXPECT_EQ(config_of({{"HUGGING_FACE_HUB_TOKEN", "b"}}).token, "b");
  EXPECT_EQ(config_of({{"HF_TOKEN", "a"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}).token, "");
  EXPECT_THROW(config_of({{"HF_TOKEN", "a\nX-Evil: 1"}}), Error);
  const std::string home = testing::TempDir() + "hub-config-test";
  std::filesystem::create_directories(home);
  std::ofstream(home + "/token") << "from-file\n";
  EXPECT_EQ(config_of({{"HF_HOME", home}}).token, "from-file");
  EXPECT_EQ(config_of({{"HF_HOME", home}, {"HF_TOKEN", "a"}}).token, "a");
  EXPECT_EQ(config_of({{"HF_TOKEN_PATH", home + "/token"}}).token, "from-file");
  std::filesystem::remove_all(home);
}

TEST(HubConfig, Switches) {
  for (const char* on : {"1", "true", "TRUE", "Yes", "ON"})
    EXPECT_TRUE(config_of({{"HF_HUB_OFFLINE", on}}).offline);
  for (const char* off : {"0", "false", "2", ""}) EXPECT_FALSE(config_of({{"HF_HUB_OFFLINE", off}}).offline);
  EXPECT_TRUE(config_of({{"TRANSFORMERS_OFFLINE", "1"}}).offline);
  EXPECT_EQ(config_of({{"HF_ENDPOINT", "http://mirror:8080//"}}).endpoint, "http://mirror:8080");
  EXPECT_EQ(config_of({{"HF_HUB_DOWNLOAD_TIMEOUT", "7"}}).patience.stall_timeout_s, 7);
  EXPECT_EQ(config_of({{"HF_HUB_DOWNLOAD_TIMEOUT", "x"}}).patience.stall_timeout_s, 30);
  EXPECT_EQ(config_of({{"LMDEPLOY_USE_OPENMIND_HUB", "true"}}).kind, HubKind::kOpenMind);
}

TEST(HubConfig, ModelScope) {
  const HubConfig config =
      config_of({{"LMDEPLOY_USE_MODELSCOPE", "True"}, {"XDG_CACHE_HOME", "/x"}, {"HF_TOKEN", "a"}});
  EXPECT_EQ(config.kind, HubKind::kModelScope);
  EXPECT_EQ(config.endpoint, "https://modelscope.cn");
  EXPECT_EQ(config.cache_dir, "/u/.cache/modelscope/hub");
  EXPECT_EQ(config.token, "");
  const HubConfig other = config_of({{"LMDEPLOY_USE_MODELSCOPE", "true"},
                                     {"MODELSCOPE_DOMAIN", "modelscope.ai"},
                                     {"MODELSCOPE_CACHE", "~/ms"},
                                     {"MODELSCOPE_API_TOKEN", "t"}});
  EXPECT_EQ(other.endpoint, "https://modelscope.ai");
  EXPECT_EQ(other.cache_dir, "/u/ms");
  EXPECT_EQ(other.token, "t");
}

}  // namespace
}  // namespace lmdeploy
