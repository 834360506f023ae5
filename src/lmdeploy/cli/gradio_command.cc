// `lmdeploy serve gradio`: the page is a Python program; this finds it and becomes it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <ostream>
#include <system_error>

#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/python_facts.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr const char* kModule = "lmdeploy.serve.gradio.app";

/// A Python that has the page. Throws Error(kUnsupported) that says which package is missing.
std::string python_with_page() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string python = python_for(program.parent_path().string());
  const PythonFacts facts = ask_python(python, {"lmdeploy", "gradio"});
  std::string missing = facts.version_and_path ? "" : "Python";
  for (const auto& [name, version] : facts.packages)
    if (!version) missing += (missing.empty() ? "" : ", ") + name;
  if (missing.empty()) return python;
  throw Error(ErrorCode::kUnsupported,
              cat("serve gradio: the page runs in Python, and ", python, " lacks: ", missing,
                  "; run `pip install 'lmdeploy[gradio]'`, or use the page at /ui that every `lmdeploy serve "
                  "api_server MODEL` has"));
}

/// Returns only by throwing.
int become_page(const std::vector<std::string>& arguments, const Console& console) {
  const std::string python = python_with_page();
  std::vector<const char*> command = {python.c_str(), "-m", kModule};
  for (const std::string& argument : arguments) command.push_back(argument.c_str());
  command.push_back(nullptr);
  console.out.flush();
  console.err.flush();
  ::execvp(python.c_str(), const_cast<char* const*>(command.data()));
  const int code = errno;
  throw Error(ErrorCode::kIo,
              cat("serve gradio: cannot start ", python, ": ", std::generic_category().message(code)));
}

}  // namespace

void add_gradio_command(CLI::App& serve, CommandContext& context) {
  CLI::App& command = *serve.add_subcommand("gradio", "Web page to chat with a model or a server");
  command.prefix_command();  // the page has its own flags, --help included
  command.set_help_flag();
  command.callback([&context, &command] {
    context.run = [&context, arguments = command.remaining()] {
      return become_page(arguments, context.console);
    };
  });
}

}  // namespace lmdeploy
