// `lmdeploy chat org/model` with a stand-in hub.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "../hub/fake_hub.h"
#include "../models/random_llama.h"
#include "../pipeline/text_models.h"
#include "program_run.h"

namespace lmdeploy::testing {
namespace {

namespace fs = std::filesystem;

class ChatHubTest : public HubTest {
 protected:
  ChatHubTest() {
    const TempFolder model;
    write_chain_model(model.path());
    hub_.files.clear();
    for (const auto& entry : fs::directory_iterator(model.path()))
      hub_.files[entry.path().filename()] = text_of(entry.path());
  }
  std::vector<std::string> environment() const {
    return {"HF_ENDPOINT=" + hub_.url(), "HF_HUB_CACHE=" + cache(), "no_proxy=127.0.0.1", "HF_HUB_OFFLINE=0",
            "TRANSFORMERS_OFFLINE=0"};
  }
  static std::vector<std::string> chat(const std::vector<std::string>& flags = {}) {
    std::vector<std::string> arguments = {"chat", "org/model", "--num-threads", "1"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return arguments;
  }
};

TEST_F(ChatHubTest, DownloadsAndAnswers) {
  ProgramRun run(chat(), ProgramRun::Input::kPipe, environment());
  run.type("hi\n\n");
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_NE(run.out().find("abcdefghijklmnopqrstuvwxyz"), std::string::npos) << run.out();
  EXPECT_EQ(run.err(), "");  // no bar without a terminal
  EXPECT_TRUE(fs::exists(snapshot() + "/model.safetensors"));
}

TEST_F(ChatHubTest, RevisionAndDownloadDir) {
  hub_.revisions["v2"] = std::string(40, 'c');
  ProgramRun run(chat({"--revision", "v2", "--download-dir", folder_ + "/mine"}), ProgramRun::Input::kPipe,
                 environment());
  run.end_input();
  EXPECT_EQ(run.finish(), 0) << run.err();
  EXPECT_EQ(text_of(folder_ + "/mine/models--org--model/refs/v2"), std::string(40, 'c'));
}

TEST_F(ChatHubTest, ATerminalSeesABarAndCtrlCStops) {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (request.method != "GET" || !request.target.ends_with(".safetensors")) return;
    reply.cut_after = static_cast<int64_t>(reply.body.size() / 2);
    reply.stall = [ended] { ended.wait(); };
  };
  ProgramRun run(chat(), ProgramRun::Input::kTerminal, environment());
  run.expect("Downloading org/model");
  const std::string partial = root() + "/blobs/" + sha256_of(hub_.files["model.safetensors"]) + ".incomplete";
  std::error_code none;
  while (!fs::exists(partial, none) || fs::file_size(partial, none) == 0) ::usleep(1000);
  run.expect("[###");
  run.send_signal(SIGINT);
  run.expect("the download was stopped; what has arrived is kept");
  EXPECT_EQ(run.finish(), 1);
  end.set_value();
  EXPECT_GT(fs::file_size(partial), 0u);
}

TEST_F(ChatHubTest, AnOlderCopyIsUsedWithAWarning) {
  fetch();
  std::vector<std::string> unreachable = environment();
  unreachable[0] = "HF_ENDPOINT=http://127.0.0.1:1";
  ProgramRun run(chat(), ProgramRun::Input::kPipe, unreachable);
  run.end_input();
  EXPECT_EQ(run.finish(), 0);
  EXPECT_NE(
      run.err().find("warning: model org/model, revision main: the hub cannot be reached, using the copy"),
      std::string::npos)
      << run.err();
}

TEST_F(ChatHubTest, WhatTheHubRefusesIsOneLine) {
  hub_.token = "s3cret";
  ProgramRun run(chat(), ProgramRun::Input::kPipe, environment());
  EXPECT_EQ(run.finish(), 1);
  EXPECT_EQ(run.err().rfind("lmdeploy: error: model org/model", 0), 0u) << run.err();
  EXPECT_NE(run.err().find("set HF_TOKEN"), std::string::npos) << run.err();
  EXPECT_EQ(run.err().find('\n'), run.err().size() - 1) << run.err();
}

}  // namespace
}  // namespace lmdeploy::testing
