#include "fake_hub.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lmdeploy/core/json.h"
#include "lmdeploy/hub/digest.h"

namespace lmdeploy::testing {
namespace {

namespace fs = std::filesystem;

std::string hash_of(DigestKind kind, const std::string& bytes) {
  Digest digest(kind, static_cast<int64_t>(bytes.size()));
  digest.update(bytes);
  return digest.finish();
}

bool is_large(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".bin") || name.ends_with(".gguf");
}

StandInReply refusal(int status, const std::string& code) {
  StandInReply reply;
  reply.status = status;
  reply.headers = {{"X-Error-Code", code}};
  reply.body = "{\"error\": \"no\"}";
  return reply;
}

}  // namespace

std::string sha256_of(const std::string& bytes) { return hash_of(DigestKind::kSha256, bytes); }
std::string git_hash_of(const std::string& bytes) { return hash_of(DigestKind::kGitBlob, bytes); }

FakeHub::FakeHub() : server_([this](const StandInRequest& request) { return answer(request); }) {
  files = {{"config.json", "{}"},
           {"tokenizer.json", "{\"version\": \"1.0\"}"},
           {"model.safetensors", std::string(100'000, 'w')},
           {"modeling_x.py", "import os"},
           {"training_args.bin", "pickle"},
           {".gitattributes", "*.bin lfs"}};
  revisions = {{"main", kCommit}, {kCommit, kCommit}};
}

size_t FakeHub::count(const std::string& begin) const {
  size_t found = 0;
  for (const StandInRequest& request : requests())
    if ((request.method + " " + request.target).starts_with(begin)) ++found;
  return found;
}

StandInReply FakeHub::listing(const std::string& revision) const {
  JsonArray siblings;
  for (const auto& [name, content] : files) siblings.push_back(JsonObject{{"rfilename", name}});
  StandInReply reply;
  reply.headers = {{"Content-Type", "application/json"}};
  reply.body =
      to_json_text(JsonObject{{"id", "org/model"}, {"sha", revisions.at(revision)}, {"siblings", siblings}});
  return reply;
}

StandInReply ranged(const StandInRequest& request, const std::string& body) {
  StandInReply reply;
  reply.body = body;
  const auto range = request.headers.find("range");
  if (range == request.headers.end()) return reply;
  const auto begin = std::stoull(range->second.substr(std::string("bytes=").size()));
  if (begin >= body.size()) return refusal(416, "");
  reply.status = 206;
  reply.body = body.substr(begin);
  reply.headers.emplace_back("Content-Range", cat("bytes ", begin, "-", body.size() - 1, "/", body.size()));
  return reply;
}

StandInReply FakeHub::file(const StandInRequest& request, const std::string& name) const {
  const auto found = files.find(name);
  if (found == files.end()) return refusal(404, "EntryNotFound");
  const std::string& content = found->second;
  if (!is_large(name)) {
    StandInReply reply = ranged(request, content);
    reply.headers.emplace_back("ETag", "\"" + git_hash_of(content) + "\"");
    reply.headers.emplace_back("X-Repo-Commit", kCommit);
    return reply;
  }
  StandInReply reply;
  if (storage_url.empty()) {
    reply = ranged(request, content);
  } else {
    reply.status = 302;
    reply.headers.emplace_back("Location", storage_url + "/storage/" + name + "?signature=secret");
  }
  reply.headers.emplace_back("X-Linked-Etag", "\"" + sha256_of(content) + "\"");
  reply.headers.emplace_back("X-Linked-Size", std::to_string(content.size()));
  return reply;
}

StandInReply FakeHub::answer(const StandInRequest& request) {
  const std::string api = "/api/models/org/model/revision/";
  StandInReply reply = refusal(404, "RepoNotFound");
  const auto authorization = request.headers.find("authorization");
  const bool allowed =
      token.empty() || (authorization != request.headers.end() && authorization->second == "Bearer " + token);
  if (!allowed) {
    reply = refusal(401, "GatedRepo");
  } else if (request.target.starts_with(api)) {
    const std::string revision = request.target.substr(api.size());
    reply = revisions.contains(revision) ? listing(revision) : refusal(404, "RevisionNotFound");
  } else if (request.target.starts_with("/org/model/resolve/")) {
    const size_t name = request.target.find('/', std::string("/org/model/resolve/").size());
    reply = file(request, request.target.substr(name + 1));
  }
  if (tamper) tamper(request, reply);
  return reply;
}

HubTest::HubTest() {
  ::setenv("no_proxy", "127.0.0.1", 1);
  std::string pattern = (fs::temp_directory_path() / "hub-test-XXXXXX").string();
  folder_ = ::mkdtemp(pattern.data());
  config_.endpoint = hub_.url();
  config_.cache_dir = cache();
}

HubTest::~HubTest() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

HubConfig HubTest::config() const { return config_; }

HubHooks HubTest::hooks() {
  HubHooks hooks;
  hooks.pause = [this](std::chrono::milliseconds time) { pauses_ms_.push_back(time.count()); };
  return hooks;
}

std::string HubTest::fetch(const ModelRequest& request) { return fetch(request, hooks()); }

std::string HubTest::fetch(const ModelRequest& request, const HubHooks& with_hooks) {
  order();
  struct Afterwards {
    const HubTest& test;
    ~Afterwards() { test.order(); }
  } const afterwards{*this};
  return fetch_model(request, config_, with_hooks);
}

std::string HubTest::failure(ErrorCode code, const ModelRequest& request) {
  try {
    ADD_FAILURE() << "no error, but " << fetch(request);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace lmdeploy::testing
