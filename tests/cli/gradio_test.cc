// `lmdeploy serve gradio` with Pythons that lack something.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "program_run.h"

namespace lmdeploy::testing {
namespace {

struct Ended {
  int code;
  std::string out, err;
};

/// With a python3 that says it has `packages`, and only repeats the arguments it is started with.
Ended run_gradio(const std::string& packages, const std::vector<std::string>& arguments) {
  const std::string folder = ::testing::TempDir() + "python", path = folder + "/python3";
  std::filesystem::create_directories(folder);
  std::ofstream(path) << "#!/bin/sh\nif [ \"$1\" = -c ]; then printf '3.11.0 " << path << "\\n"
                      << packages << "'; else echo \"started: $*\"; fi\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  std::vector<std::string> all = {"serve", "gradio"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  ProgramRun run(all, ProgramRun::Input::kClosed,
                 {"PATH=" + folder + ":" + std::getenv("PATH")});  // NOLINT(concurrency-mt-unsafe)
  const int code = run.finish();
  return {code, run.out(), run.err()};
}

TEST(GradioCommand, HelpNeedsNoGradio) {
  for (const char* flag : {"--help", "-h"}) {
    const Ended page = run_gradio("lmdeploy 1\\n", {flag});
    EXPECT_EQ(page.code, 0) << page.err;
    EXPECT_EQ(page.out, std::string("started: -m lmdeploy.serve.gradio.app ") + flag + "\n");
    const Ended native = run_gradio("", {flag});
    EXPECT_EQ(native.code, 0) << native.err;
    for (const char* words : {"Usage: lmdeploy serve gradio", "lacks: lmdeploy, gradio", "pip install"})
      EXPECT_NE(native.out.find(words), std::string::npos) << native.out;
  }
}

TEST(GradioCommand, ThePageNeedsIt) {
  const Ended lacks = run_gradio("lmdeploy 1\\n", {"model"});
  EXPECT_EQ(lacks.code, 1);
  EXPECT_NE(lacks.err.find("lacks: gradio"), std::string::npos) << lacks.err;
  EXPECT_EQ(run_gradio("lmdeploy 1\\ngradio 4\\n", {"model"}).out,
            "started: -m lmdeploy.serve.gradio.app model\n");
}

}  // namespace
}  // namespace lmdeploy::testing
