// What the hub refuses, what it sends instead, and what happens without it.
#include <filesystem>
#include <future>

#include "fake_hub.h"

namespace lmdeploy::testing {
namespace {

namespace fs = std::filesystem;

class HubErrorsTest : public HubTest {
 protected:
  void always(const StandInReply& reply) {
    hub_.tamper = [reply](const StandInRequest&, StandInReply& sent) { sent = reply; };
  }
  void expect_words(const std::string& message, const std::vector<std::string>& words) const {
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
  }
};

TEST_F(HubErrorsTest, GatedAndPrivateModelsSayWhatToSet) {
  hub_.token = "s3cret";
  expect_words(failure(ErrorCode::kIo), {"org/model", "gated", "accept its conditions", "set HF_TOKEN"});
  config_.token = "wrong";
  const std::string message = failure(ErrorCode::kIo);
  expect_words(message, {"the token of HF_TOKEN", "does not open it"});
  EXPECT_EQ(message.find("wrong"), std::string::npos);
  always({.status = 403});
  expect_words(failure(ErrorCode::kIo), {"403", "private or gated"});
  EXPECT_TRUE(pauses_ms_.empty());  // asking again would not help
}

TEST_F(HubErrorsTest, NotFoundSaysHowALocalPathIsWritten) {
  expect_words(failure(ErrorCode::kNotFound, {.model = "org/other"}),
               {"org/other", "no such model", "write ./org/other"});
  expect_words(failure(ErrorCode::kNotFound, {.model = "org/model", .revision = "nope"}),
               {"nope", "no such branch, tag or commit"});
  expect_words(failure(ErrorCode::kNotFound, {.model = "org/model/x.gguf"}), {"no file x.gguf"});
}

TEST_F(HubErrorsTest, BusyServersAreAskedAgain) {
  int refusals = 0;
  hub_.tamper = [&](const StandInRequest&, StandInReply& reply) {
    if (++refusals <= 2) reply = {.status = refusals == 1 ? 500 : 503};
  };
  fetch();
  EXPECT_EQ(pauses_ms_, (std::vector<int64_t>{500, 1000}));
}

TEST_F(HubErrorsTest, RetryAfterIsHonouredWithinBounds) {
  int refusals = 0;
  hub_.tamper = [&](const StandInRequest&, StandInReply& reply) {
    if (++refusals == 1) reply = {.status = 429, .headers = {{"Retry-After", "7"}}};
  };
  fetch();
  EXPECT_EQ(pauses_ms_, std::vector<int64_t>{7000});
  fs::remove_all(cache());
  pauses_ms_.clear();
  always({.status = 429, .headers = {{"Retry-After", "86400"}}});
  expect_words(failure(ErrorCode::kIo), {"429", "asks to wait"});
  EXPECT_TRUE(pauses_ms_.empty());
}

TEST_F(HubErrorsTest, TriesAreBounded) {
  always({.status = 500});
  expect_words(failure(ErrorCode::kIo), {"answers 500", "no copy in " + cache()});
  EXPECT_EQ(hub_.requests().size(), 5u);
}

TEST_F(HubErrorsTest, AStalledServerIsLeft) {
  std::promise<void> end;
  std::shared_future<void> ended = end.get_future().share();
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (request.method != "GET" || !request.target.ends_with(".safetensors")) return;
    reply.cut_after = request.headers.contains("range") ? 0 : 1000;
    reply.stall = [ended] { ended.wait(); };
  };
  config_.patience.stall_timeout_s = 1;
  config_.patience.max_tries = 2;
  const std::string message = failure(ErrorCode::kIo);
  end.set_value();
  expect_words(message, {"model.safetensors", "too slow"});
  EXPECT_EQ(fs::file_size(root() + "/blobs/" + sha256_of(hub_.files["model.safetensors"]) + ".incomplete"),
            1000u);
}

TEST_F(HubErrorsTest, OfflineAsksNobody) {
  config_.offline = true;
  expect_words(failure(ErrorCode::kNotFound), {"HF_HUB_OFFLINE", "no copy"});
  config_.offline = false;
  fetch();
  const size_t before = hub_.requests().size();
  config_.offline = true;
  EXPECT_EQ(fetch(), snapshot());
  EXPECT_EQ(fetch({.model = "org/model", .revision = kCommit}), snapshot());
  expect_words(failure(ErrorCode::kNotFound, {.model = "org/model", .revision = "v2"}), {"v2", "no copy"});
  fs::remove(snapshot() + "/model.safetensors");
  expect_words(failure(ErrorCode::kNotFound), {"not complete", "no weights"});
  EXPECT_EQ(hub_.requests().size(), before);
}

TEST_F(HubErrorsTest, WithoutANetworkTheCopyIsUsed) {
  fetch();
  always({.status = 502});
  EXPECT_EQ(fetch(), snapshot());
  config_.endpoint = "http://127.0.0.1:1";
  EXPECT_EQ(fetch(), snapshot());
  pauses_ms_.clear();
  expect_words(failure(ErrorCode::kIo, {.model = "org/model", .revision = "v2"}),
               {"cannot be reached", "no copy"});
  EXPECT_TRUE(pauses_ms_.empty());
}

TEST_F(HubErrorsTest, LocalPathsAskNobody) {
  write_text(folder_ + "/org/model/config.json", "{}");
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(fetch(), "org/model");
  fs::current_path(before);
  for (const char* path : {"/no/such/path", "./org/model2", "no-such", "../a", "org/model.gguf", "a/b/c", "",
                           "https://hub.example/a/b", "org/na--me", "org/..", "org/a b"})
    expect_words(failure(ErrorCode::kNotFound, {.model = path}), {path, "no such folder or file"});
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(HubErrorsTest, BadRevisionsAndAddresses) {
  for (const char* revision : {"../main", "a/../b", "/a", "-x", "a b", "a:b", "x\n"})
    expect_words(failure(ErrorCode::kInvalidArgument, {.model = "org/model", .revision = revision}),
                 {"revision"});
  EXPECT_TRUE(hub_.requests().empty());
  for (const char* endpoint : {"file:///tmp", "hub.example", "ftp://hub.example", ""}) {
    config_.endpoint = endpoint;
    expect_words(failure(ErrorCode::kInvalidArgument), {"hub's address"});
  }
  config_.kind = HubKind::kOpenMind;
  expect_words(failure(ErrorCode::kUnsupported), {"LMDEPLOY_USE_OPENMIND_HUB"});
}

TEST_F(HubErrorsTest, HostileListsAreRefused) {
  const auto listing = [](const std::string& file) {
    return cat(R"({"sha": ")", kCommit, R"(", "siblings": [{"rfilename": ")", file, R"("}]})");
  };
  std::string many = cat(R"({"sha": ")", kCommit, R"(", "siblings": [)");
  for (int i = 0; i < 100'001; ++i) many += cat(i == 0 ? "" : ",", R"({"rfilename":"a"})");
  for (const std::string& body :
       {listing("../../etc/passwd"), listing("/etc/passwd"), listing("a/../../b"), listing("a\\u0000b"),
        listing("a//b"), listing("..\\\\b"), listing(""), listing("."), listing(std::string(300, 'x')),
        many + "]}", std::string("{"), std::string("[]"), std::string("null"),
        std::string(R"({"sha": "../..", "siblings": []})"), std::string(R"({"sha": 5, "siblings": []})"),
        cat(R"({"sha": ")", kCommit, R"(", "siblings": {}})"),
        cat(R"({"sha": ")", kCommit, R"(", "siblings": [5]})")}) {
    always({.body = body});
    const std::string message = failure(ErrorCode::kInvalidData);
    EXPECT_LT(message.size(), 1000u);
  }
  EXPECT_FALSE(fs::exists(cache()));
}

TEST_F(HubErrorsTest, HostileFileHeadersAreRefused) {
  using Headers = std::vector<std::pair<std::string, std::string>>;
  for (const Headers& headers :
       {Headers{{"ETag", "\"../../x\""}}, Headers{{"ETag", "\"\""}}, Headers{}, Headers{{"ETag", ".hidden"}},
        Headers{{"ETag", "a"}, {"X-Linked-Size", "-1"}}, Headers{{"ETag", "a"}, {"X-Linked-Size", "1e9"}},
        Headers{{"ETag", "a"}, {"X-Linked-Size", "99999999999999999999"}},
        Headers{{"X-Linked-Etag", "a/b"}, {"ETag", "a"}}}) {
    hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
      if (request.method == "HEAD") reply = {.headers = headers};
    };
    failure(ErrorCode::kInvalidData);
  }
  EXPECT_FALSE(fs::exists(root() + "/blobs"));
}

TEST_F(HubErrorsTest, HostileIndexesAreRefused) {
  hub_.files.erase("model.safetensors");
  for (const char* index : {R"({"weight_map": {"a": "../x.safetensors"}})", R"({"weight_map": {"a": 5}})",
                            "{}", "[", R"({"weight_map": []})"}) {
    hub_.files["model.safetensors.index.json"] = index;
    fs::remove_all(cache());
    failure(ErrorCode::kInvalidData);
  }
  fs::remove_all(cache());
  hub_.files["model.safetensors.index.json"] = R"({"weight_map": {"a": "gone.safetensors"}})";
  expect_words(failure(ErrorCode::kNotFound), {"gone.safetensors"});
}

TEST_F(HubErrorsTest, AFolderThatCannotBeWrittenSaysSo) {
  write_text(folder_ + "/file", "");
  expect_words(failure(ErrorCode::kIo, {.model = "org/model", .download_dir = folder_ + "/file"}),
               {folder_ + "/file"});
}

}  // namespace
}  // namespace lmdeploy::testing
