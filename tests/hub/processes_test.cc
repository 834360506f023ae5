// Several processes at one cache, and one that is killed.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "fake_hub.h"

extern char** environ;

namespace lmdeploy::testing {
namespace {

namespace fs = std::filesystem;

class ProcessesTest : public HubTest {
 protected:
  pid_t start() const {
    const std::string endpoint = hub_.url(), cache_dir = cache();
    std::string model = "org/model";
    char* const arguments[] = {const_cast<char*>(HUB_FETCH), const_cast<char*>(endpoint.c_str()),
                               const_cast<char*>(cache_dir.c_str()), model.data(), nullptr};
    pid_t pid = -1;
    EXPECT_EQ(::posix_spawn(&pid, HUB_FETCH, nullptr, nullptr, arguments, environ), 0);
    return pid;
  }
  static int wait_for(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string partial() const {
    return root() + "/blobs/" + sha256_of(hub_.files.at("model.safetensors")) + ".incomplete";
  }
};

TEST_F(ProcessesTest, DownloadAFileOnce) {
  const pid_t first = start(), second = start();
  EXPECT_EQ(fetch(), snapshot());
  EXPECT_EQ(wait_for(first), 0);
  EXPECT_EQ(wait_for(second), 0);
  EXPECT_EQ(hub_.count("GET /org/model/resolve"), 3u);
  EXPECT_EQ(text_of(snapshot() + "/model.safetensors"), hub_.files["model.safetensors"]);
}

TEST_F(ProcessesTest, AfterKill9TheRestIsFetched) {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  hub_.tamper = [&](const StandInRequest& request, StandInReply& reply) {
    if (request.method != "GET" || !request.target.ends_with(".safetensors")) return;
    if (request.headers.contains("range")) return;
    reply.cut_after = 70'000;
    reply.stall = [ended] { ended.wait(); };
  };
  const pid_t killed = start();
  std::error_code none;
  while (!fs::exists(partial(), none) || fs::file_size(partial(), none) < 70'000) ::usleep(1000);
  ::kill(killed, SIGKILL);
  EXPECT_EQ(wait_for(killed), 128 + SIGKILL);
  end.set_value();
  EXPECT_EQ(fetch(), snapshot());
  EXPECT_EQ(text_of(snapshot() + "/model.safetensors"), hub_.files["model.safetensors"]);
  EXPECT_EQ(hub_.requests().back().headers.at("range"), "bytes=70000-");
}

}  // namespace
}  // namespace lmdeploy::testing
