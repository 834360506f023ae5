// ModelScope's interface and folder layout.
#include <filesystem>

#include "fake_hub.h"
#include "lmdeploy/core/json.h"

namespace lmdeploy::testing {
namespace {

namespace fs = std::filesystem;

class ModelScopeTest : public HubTest {
 protected:
  ModelScopeTest() {
    config_.kind = HubKind::kModelScope;
    config_.endpoint = server_.url();
  }

  void order() const override { server_.url(); }

  StandInReply answer(const StandInRequest& request) {
    const std::string list =
        "/api/v1/models/org/model.v1/repo/files?Revision=" + revision_ + "&Recursive=true";
    const std::string file = "/api/v1/models/org/model.v1/repo?Revision=" + revision_ + "&FilePath=";
    if (request.target == list) return {.body = to_json_text(listing())};
    if (!request.target.starts_with(file)) return {.status = 404, .body = R"({"Code": 10010205001})"};
    if (!fails_on_.empty() && request.target.ends_with(fails_on_)) return {.status = 403};
    return ranged(request, files_.at(request.target.substr(file.size())));
  }
  Json listing() const {
    JsonArray list = {JsonObject{{"Path", "folder"}, {"Type", "tree"}}};
    for (const auto& [name, content] : files_)
      list.push_back(JsonObject{
          {"Path", name}, {"Type", "blob"}, {"Size", content.size()}, {"Sha256", sha256_of(content)}});
    return JsonObject{{"Code", 200}, {"Data", JsonObject{{"Files", list}}}};
  }
  size_t downloads() const {
    size_t count = 0;
    for (const StandInRequest& request : server_.requests())
      if (request.target.find("FilePath") != std::string::npos) ++count;
    return count;
  }
  std::string folder() const { return cache() + "/models/org/model___v1"; }

  const ModelRequest request_ = {.model = "org/model.v1"};
  std::string revision_ = "master", fails_on_;
  std::map<std::string, std::string> files_ = {{"config.json", "{}"},
                                               {"tokenizer.json", "{ }"},
                                               {"model.safetensors", std::string(5000, 'm')},
                                               {"x.py", "x"}};
  HttpStandIn server_{[this](const StandInRequest& request) { return answer(request); }};
};

TEST_F(ModelScopeTest, FillsItsFolder) {
  EXPECT_EQ(fetch(request_), folder());
  EXPECT_EQ(text_of(folder() + "/model.safetensors"), files_["model.safetensors"]);
  EXPECT_FALSE(fs::exists(folder() + "/x.py"));
  EXPECT_EQ(downloads(), 3u);
  fetch(request_);
  EXPECT_EQ(downloads(), 3u);
}

TEST_F(ModelScopeTest, OfflineAndUnreachable) {
  fetch(request_);
  config_.endpoint = "http://127.0.0.1:1";
  EXPECT_EQ(fetch(request_), folder());
  config_.offline = true;
  EXPECT_EQ(fetch(request_), folder());
  failure(ErrorCode::kNotFound, {.model = "org/model.v1", .revision = "v2"});
}

TEST_F(ModelScopeTest, OnlyWhatChangedIsFetchedForAnotherRevision) {
  fetch(request_);
  revision_ = "v2";
  files_["config.json"] = "{\"a\":1}";
  EXPECT_EQ(fetch({.model = "org/model.v1", .revision = "v2"}), folder());
  EXPECT_EQ(text_of(folder() + "/config.json"), "{\"a\":1}");
  EXPECT_EQ(downloads(), 4u);
  config_.offline = true;
  failure(ErrorCode::kNotFound, request_);  // the folder holds v2 now
}

TEST_F(ModelScopeTest, AHalfChangedFolderIsOfNoRevision) {
  fetch(request_);
  revision_ = "v2";
  files_["config.json"] = "{\"a\":1}";
  files_["model.safetensors"] = std::string(6000, 'n');
  fails_on_ = "model.safetensors";
  failure(ErrorCode::kIo, {.model = "org/model.v1", .revision = "v2"});
  config_.offline = true;
  failure(ErrorCode::kNotFound, request_);
  config_.offline = false;
  fails_on_.clear();
  EXPECT_EQ(fetch({.model = "org/model.v1", .revision = "v2"}), folder());
  EXPECT_EQ(text_of(folder() + "/model.safetensors"), files_["model.safetensors"]);
}

TEST_F(ModelScopeTest, FilesOfItsOwnToolsAreTaken) {
  for (const auto& [name, content] : files_) write_text(folder() + "/" + name, content);
  write_text(folder() + "/config.json", "[]");  // same size, other bytes
  EXPECT_EQ(fetch(request_), folder());
  EXPECT_EQ(downloads(), 1u);
  EXPECT_EQ(text_of(folder() + "/config.json"), "{}");
}

TEST_F(ModelScopeTest, ADamagedRecordIsNoObstacle) {
  fetch(request_);
  write_text(folder() + "/.lmdeploy/files.json", "{\"revision\": 5");
  EXPECT_EQ(fetch(request_), folder());
  EXPECT_EQ(downloads(), 3u);
}

TEST_F(ModelScopeTest, TheTokenIsACookie) {
  config_.token = "s3cret";
  fetch(request_);
  EXPECT_EQ(server_.requests()[0].headers.at("cookie"), "m_session_id=s3cret");
}

TEST_F(ModelScopeTest, NotFound) {
  EXPECT_NE(failure(ErrorCode::kNotFound).find("org/model"), std::string::npos);
}

}  // namespace
}  // namespace lmdeploy::testing
