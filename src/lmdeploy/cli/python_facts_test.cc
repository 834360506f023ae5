#include "lmdeploy/cli/python_facts.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

/// A folder that Python imports from.
class PythonFactsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "python_facts_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ::setenv("PYTHONPATH", folder_.c_str(), 1);
    if (!ask_python("python3", {}).version_and_path) GTEST_SKIP() << "there is no python3";
  }
  void TearDown() override {
    ::unsetenv("PYTHONPATH");
    fs::remove_all(folder_);
  }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }

  fs::path folder_;
};

TEST_F(PythonFactsTest, PackagesAreWhatCanBeImported) {
  write("plain/__init__.py", "print('noise')\n__version__ = '1.2'\n");
  write("with_metadata/__init__.py", "raise RuntimeError('not to be imported')\n");
  write("with_metadata-3.4.dist-info/METADATA", "Metadata-Version: 2.1\nName: with_metadata\nVersion: 3.4\n");
  write("gone-5.6.dist-info/METADATA", "Metadata-Version: 2.1\nName: gone\nVersion: 5.6\n");
  write("broken/__init__.py", "raise ImportError('no\\nlibrary')\n");
  fs::create_directories(folder_ / "no_package");
  const PythonFacts facts =
      ask_python("python3", {"gone", "plain", "with_metadata", "broken", "no_package", "absent"});
  using Packages = decltype(facts.packages);
  EXPECT_EQ(facts.packages, (Packages{{"gone", std::nullopt},
                                      {"plain", "1.2"},
                                      {"with_metadata", "3.4"},
                                      {"broken", "cannot be imported: no library"},
                                      {"no_package", std::nullopt},
                                      {"absent", std::nullopt}}));
}

TEST_F(PythonFactsTest, ThePythonBesideTheProgramComesFirst) {
  EXPECT_EQ(python_for(folder_.string()), "python3");
  write("python", "#!/bin/sh\n");
  EXPECT_EQ(python_for(folder_.string()), "python3");  // not executable
  fs::permissions(folder_ / "python", fs::perms::owner_all);
  EXPECT_EQ(python_for(folder_.string()), folder_ / "python");
}

TEST_F(PythonFactsTest, NoPython) {
  const PythonFacts facts = ask_python("no-such-python-anywhere", {"numpy"});
  EXPECT_EQ(facts.version_and_path, std::nullopt);
  EXPECT_EQ(facts.packages.at(0).second, std::nullopt);
}

}  // namespace
}  // namespace lmdeploy
