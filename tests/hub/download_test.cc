// From the hub into the cache, over good and bad connections.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "fake_hub.h"

namespace lmdeploy::testing {
namespace {

namespace fs = std::filesystem;

const std::string kWeights = "/org/model/resolve/" + kCommit + "/model.safetensors";

class DownloadTest : public HubTest {
 protected:
  std::string weights() const { return hub_.files.at("model.safetensors"); }
  std::string partial() const { return root() + "/blobs/" + sha256_of(weights()) + ".incomplete"; }
  void expect_whole() const {
    EXPECT_EQ(text_of(snapshot() + "/model.safetensors"), weights());
    EXPECT_FALSE(fs::exists(partial()));
  }
  /// Bytes that the GET requests of the weights began at.
  std::vector<std::string> ranges() const {
    std::vector<std::string> found;
    for (const StandInRequest& request : hub_.requests()) {
      if (request.method != "GET" || request.target != kWeights) continue;
      const auto range = request.headers.find("range");
      found.push_back(range == request.headers.end() ? "" : range->second);
    }
    return found;
  }
  using Ranges = std::vector<std::string>;
};

bool is_weights(const StandInRequest& request) {
  return request.method == "GET" && request.target == kWeights;
}

TEST_F(DownloadTest, FillsTheCacheThatOtherToolsShare) {
  EXPECT_EQ(fetch(), snapshot());
  EXPECT_EQ(text_of(root() + "/refs/main"), kCommit);
  EXPECT_EQ(fs::read_symlink(snapshot() + "/config.json"), "../../blobs/" + git_hash_of("{}"));
  EXPECT_EQ(fs::read_symlink(snapshot() + "/model.safetensors"), "../../blobs/" + sha256_of(weights()));
  EXPECT_TRUE(fs::exists(cache() + "/.locks/models--org--model/" + sha256_of(weights()) + ".lock"));
  expect_whole();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(snapshot())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"config.json", "model.safetensors", "tokenizer.json"}));
}

TEST_F(DownloadTest, ASecondTimeAsksForTheListOnly) {
  fetch();
  const size_t before = hub_.requests().size();
  EXPECT_EQ(fetch(), snapshot());
  EXPECT_EQ(hub_.requests().size(), before + 1);
}

TEST_F(DownloadTest, ACommitThatIsHereNeedsNoRequest) {
  EXPECT_EQ(fetch({.model = "org/model", .revision = kCommit}), snapshot());
  EXPECT_FALSE(fs::exists(root() + "/refs"));
  const size_t before = hub_.requests().size();
  fetch({.model = "org/model", .revision = kCommit});
  EXPECT_EQ(hub_.requests().size(), before);
}

TEST_F(DownloadTest, BranchesAndTagsShareBlobs) {
  const std::string other(40, 'a');
  hub_.revisions["v1"] = other;
  hub_.revisions["pr%2F1"] = kCommit;
  fetch();
  EXPECT_EQ(fetch({.model = "org/model", .revision = "v1"}), snapshot(other));
  EXPECT_EQ(fetch({.model = "org/model", .revision = "pr/1"}), snapshot());
  EXPECT_EQ(text_of(root() + "/refs/v1"), other);
  EXPECT_EQ(text_of(root() + "/refs/pr/1"), kCommit);
  EXPECT_EQ(hub_.count("GET " + kWeights), 1u);
  EXPECT_EQ(text_of(snapshot(other) + "/model.safetensors"), weights());
}

TEST_F(DownloadTest, ANewCommitOfTheBranchIsFetched) {
  fetch();
  const std::string next(40, 'b');
  hub_.revisions["main"] = next;
  hub_.files["config.json"] = "{\"new\": 1}";
  EXPECT_EQ(fetch(), snapshot(next));
  EXPECT_EQ(text_of(snapshot(next) + "/config.json"), "{\"new\": 1}");
  EXPECT_EQ(text_of(snapshot() + "/config.json"), "{}");
}

TEST_F(DownloadTest, GoesOnWhereTheConnectionWasCut) {
  hub_.tamper = [](const StandInRequest& request, StandInReply& reply) {
    if (is_weights(request))
      reply.cut_after = std::min<int64_t>(40'000, static_cast<int64_t>(reply.body.size()));
  };
  fetch();
  expect_whole();
  EXPECT_EQ(ranges(), (Ranges{"", "bytes=40000-", "bytes=80000-"}));
}

TEST_F(DownloadTest, AConnectionThatEndsWithoutLengthIsCutToo) {
  int pieces = 0;
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (!is_weights(request) || ++pieces > 1) return;
    reply.says_length = false;
    reply.body.resize(30'000);
  };
  fetch();
  expect_whole();
  EXPECT_EQ(ranges(), (Ranges{"", "bytes=30000-"}));
}

TEST_F(DownloadTest, AServerWithoutRangesBeginsAnew) {
  int tries = 0;
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (!is_weights(request)) return;
    reply = {.body = weights()};
    if (++tries < 3) reply.cut_after = 10'000 * tries;
  };
  fetch();
  expect_whole();
  EXPECT_EQ(tries, 3);
}

TEST_F(DownloadTest, APartialFileOfAnEarlierRunIsContinued) {
  write_text(partial(), weights().substr(0, 60'000));
  fetch();
  expect_whole();
  EXPECT_EQ(ranges(), Ranges{"bytes=60000-"});
}

TEST_F(DownloadTest, AWholePartialFileNeedsNoRequest) {
  write_text(partial(), weights());
  fetch();
  expect_whole();
  EXPECT_EQ(ranges(), Ranges{});
}

TEST_F(DownloadTest, APartialFileWithOtherBytesIsReplaced) {
  write_text(partial(), std::string(60'000, 'x'));
  fetch();
  expect_whole();
  EXPECT_EQ(ranges(), (Ranges{"bytes=60000-", ""}));
  fs::remove_all(cache());
  write_text(partial(), std::string(200'000, 'x'));  // and one that is too long
  fetch();
  expect_whole();
}

TEST_F(DownloadTest, ARangeThatCannotBeServedBeginsAnewOnce) {
  write_text(partial(), weights().substr(0, 60'000));
  int refusals = 0;
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (is_weights(request) && request.headers.contains("range") && ++refusals > 0) reply = {.status = 416};
  };
  fetch();
  expect_whole();
  EXPECT_EQ(refusals, 1);
}

TEST_F(DownloadTest, ARangeOfOtherBytesIsRefused) {
  write_text(partial(), weights().substr(0, 60'000));
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (is_weights(request)) reply.headers = {{"Content-Range", "bytes 0-39999/100000"}};
  };
  EXPECT_NE(failure(ErrorCode::kInvalidData).find("range"), std::string::npos);
  EXPECT_EQ(fs::file_size(partial()), 60'000u);
}

TEST_F(DownloadTest, EndlessSmallStepsBackEndToo) {
  // Never more than 50,000 bytes arrive, by turns: no progress, however many bytes come.
  int tries = 0;
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (!is_weights(request)) return;
    reply = {.body = weights()};
    reply.cut_after = ++tries % 2 == 0 ? 50'000 : 25'000;
  };
  EXPECT_NE(failure(ErrorCode::kIo).find("model.safetensors"), std::string::npos);
  EXPECT_LE(tries, 8);
}

TEST_F(DownloadTest, WrongHashLeavesNothing) {
  for (const char* file : {"model.safetensors", "config.json"}) {
    fs::remove_all(cache());
    hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
      if (request.method == "GET" && request.target.ends_with(file)) reply.body[0] = '#';
    };
    const std::string message = failure(ErrorCode::kInvalidData);
    EXPECT_NE(message.find("does not have the hash"), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(snapshot() + "/" + file));
    hub_.tamper = {};
    EXPECT_EQ(fetch(), snapshot());
  }
}

TEST_F(DownloadTest, MoreBytesThanListedAreRefused) {
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (is_weights(request)) reply.body += "more";
  };
  EXPECT_NE(failure(ErrorCode::kInvalidData).find("more than the 100000 bytes"), std::string::npos);
  EXPECT_FALSE(fs::exists(snapshot() + "/model.safetensors"));
}

TEST_F(DownloadTest, FewerBytesThanListedAreATemporaryFailure) {
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (is_weights(request)) reply = {.body = weights().substr(0, 50'000)};
  };
  EXPECT_NE(failure(ErrorCode::kIo).find("50000 of 100000 bytes"), std::string::npos);
  EXPECT_EQ(fs::file_size(partial()), 50'000u);
}

TEST_F(DownloadTest, LargeFilesComeFromAnotherHostWithoutTheToken) {
  HttpStandIn storage([&](const StandInRequest& request) { return ranged(request, weights()); });
  hub_.storage_url = storage.url();
  hub_.token = config_.token = "s3cret";
  fetch();
  expect_whole();
  ASSERT_EQ(storage.requests().size(), 1u);
  EXPECT_EQ(storage.requests()[0].target, "/storage/model.safetensors?signature=secret");
  EXPECT_FALSE(storage.requests()[0].headers.contains("authorization"));
}

TEST_F(DownloadTest, EtagsInAllForms) {
  const std::string hash = git_hash_of("{}");
  for (const std::string& etag :
       {"\"" + hash + "\"", "W/\"" + hash + "\"", hash, std::string("\"abc-gzip\"")}) {
    fs::remove_all(cache());
    hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
      if (request.target.ends_with("config.json")) reply.headers = {{"ETag", etag}};
    };
    EXPECT_EQ(fetch(), snapshot()) << etag;
    EXPECT_EQ(text_of(snapshot() + "/config.json"), "{}");
  }
}

TEST_F(DownloadTest, ALinkWithoutItsBlobIsMended) {
  fetch();
  fs::remove(root() + "/blobs/" + sha256_of(weights()));
  fetch();
  expect_whole();
}

TEST_F(DownloadTest, ABlobThatIsHereIsLinked) {
  write_text(root() + "/blobs/" + sha256_of(weights()), weights());
  fetch();
  expect_whole();
  EXPECT_EQ(ranges(), Ranges{});
}

TEST_F(DownloadTest, ShardsComeByTheirIndex) {
  hub_.files.erase("model.safetensors");
  hub_.files["model-00001-of-00002.safetensors"] = "one";
  hub_.files["model-00002-of-00002.safetensors"] = "two";
  hub_.files["consolidated.safetensors"] = "twice the bytes";
  hub_.files["model.safetensors.index.json"] =
      R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})";
  fetch();
  EXPECT_EQ(text_of(snapshot() + "/model-00002-of-00002.safetensors"), "two");
  EXPECT_FALSE(fs::exists(snapshot() + "/consolidated.safetensors"));
}

TEST_F(DownloadTest, ATokenizerNeedsNoWeights) {
  EXPECT_EQ(fetch({.model = "org/model", .weights = false}), snapshot());
  EXPECT_FALSE(fs::exists(snapshot() + "/model.safetensors"));
  EXPECT_EQ(hub_.count("HEAD " + kWeights), 0u);
  config_.offline = true;
  EXPECT_EQ(fetch({.model = "org/model", .weights = false}), snapshot());
  EXPECT_NE(failure(ErrorCode::kNotFound).find("not complete"), std::string::npos);
}

TEST_F(DownloadTest, AGgufByItsName) {
  hub_.files = {
      {"a-Q4_0.gguf", "four"}, {"big/b-00001-of-00002.gguf", "b1"}, {"big/b-00002-of-00002.gguf", "b2"}};
  EXPECT_EQ(fetch({.model = "org/model/a-Q4_0.gguf"}), snapshot() + "/a-Q4_0.gguf");
  EXPECT_EQ(hub_.count("GET /org/model/resolve"), 1u);
  EXPECT_EQ(fetch({.model = "org/model/big/b-00002-of-00002.gguf"}),
            snapshot() + "/big/b-00001-of-00002.gguf");
  EXPECT_EQ(text_of(snapshot() + "/big/b-00002-of-00002.gguf"), "b2");
  EXPECT_EQ(fs::read_symlink(snapshot() + "/big/b-00002-of-00002.gguf"), "../../../blobs/" + sha256_of("b2"));
  const std::string message = failure(ErrorCode::kInvalidArgument);
  EXPECT_NE(message.find("a-Q4_0.gguf, big/b-00001-of-00002.gguf; name one: org/model/a-Q4_0.gguf"),
            std::string::npos)
      << message;
  config_.offline = true;
  EXPECT_EQ(fetch({.model = "org/model/a-Q4_0.gguf"}), snapshot() + "/a-Q4_0.gguf");
}

TEST_F(DownloadTest, DownloadDirComesFirst) {
  EXPECT_EQ(fetch({.model = "org/model", .download_dir = folder_ + "/mine"}),
            folder_ + "/mine/models--org--model/snapshots/" + kCommit);
  EXPECT_FALSE(fs::exists(cache()));
}

TEST_F(DownloadTest, ProgressReachesTheTotal) {
  HubStatus last;
  HubHooks with_progress = hooks();
  with_progress.progress = [&](const HubStatus& status) {
    EXPECT_LE(status.done_bytes, status.total_bytes);
    EXPECT_GE(status.done_bytes, last.done_bytes);
    last = status;
  };
  fetch({.model = "org/model"}, with_progress);
  EXPECT_EQ(last.file, "model.safetensors");
  EXPECT_EQ(last.done_bytes, last.total_bytes);
  EXPECT_GT(last.total_bytes, 100'000);
}

TEST_F(DownloadTest, WhatProgressThrowsStopsAndKeepsThePartialFile) {
  HubHooks stopping = hooks();
  stopping.progress = [](const HubStatus& status) {
    if (status.done_bytes > 50'000) throw Error(ErrorCode::kClosed, "enough");
  };
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (!is_weights(request)) return;
    reply.cut_after = 60'000;  // after that the connection is cut, and progress is asked
  };
  EXPECT_THROW(fetch({.model = "org/model"}, stopping), Error);
  EXPECT_GT(fs::file_size(partial()), 50'000u);
  hub_.tamper = {};
  fetch();
  expect_whole();
  EXPECT_EQ(ranges().back().substr(0, 6), "bytes=");
}

TEST_F(DownloadTest, AFullDiskIsOneErrorAndKeepsWhatCame) {
  // A limit on file sizes ends a write as a full disk does, with another word for it.
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {50'000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = failure(ErrorCode::kIo);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_NE(message.find("50000 of 100000 bytes of model.safetensors are kept"), std::string::npos)
      << message;
  EXPECT_EQ(fs::file_size(partial()), 50'000u);
  fetch();
  expect_whole();
}

TEST_F(DownloadTest, ThreadsShareOneDownload) {
  std::vector<std::thread> threads;
  std::vector<std::string> paths(4);
  for (std::string& path : paths)
    threads.emplace_back([&] { path = fetch_model({.model = "org/model"}, config_); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(paths, std::vector<std::string>(4, snapshot()));
  EXPECT_EQ(hub_.count("GET /org/model/resolve"), 3u);  // each file once
  expect_whole();
}

}  // namespace
}  // namespace lmdeploy::testing
