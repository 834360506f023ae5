// `lmdeploy serve gradio`: the page is a Python program; this finds it and becomes it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
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

struct PagePython {
  std::string path;
  std::string missing;  // of what the page needs; empty: nothing
};

PagePython find_python() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  PagePython python{python_for(program.parent_path().string()), {}};
  const PythonFacts facts = ask_python(python.path, {"lmdeploy", "gradio"});
  if (!facts.version_and_path) python.missing = "Python";
  for (const auto& [name, version] : facts.packages)
    if (!version) python.missing += (python.missing.empty() ? "" : ", ") + name;
  return python;
}

std::string lack_of(const PagePython& python) {
  return cat("the page runs in Python, and ", python.path, " lacks: ", python.missing,
             "; run `pip install 'lmdeploy[gradio]'`, or use the page at /ui that every `lmdeploy serve "
             "api_server MODEL` has");
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& argument) { return argument == "--help" || argument == "-h"; });
}

/// Returns only by throwing.
int become_page(const std::string& python, const std::vector<std::string>& arguments,
                const Console& console) {
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

/// The page's own help needs no gradio; without the package lmdeploy there is still what it is and needs.
int run_gradio(const CLI::App& app, const std::vector<std::string>& arguments, const Console& console) {
  const PagePython python = find_python();
  const bool help = asks_for_help(arguments);
  if (python.missing.empty() || (help && python.missing == "gradio"))
    return become_page(python.path, arguments, console);
  if (!help) throw Error(ErrorCode::kUnsupported, "serve gradio: " + lack_of(python));
  console.out << app.get_description()
              << "\nUsage: lmdeploy serve gradio PATH_OR_SERVER [FLAGS]\n\nThe flags are "
              << "those that its Python program lists: " << lack_of(python) << ".\n";
  check_written(console.out);
  return 0;
}

}  // namespace

void add_gradio_command(CLI::App& serve, CommandContext& context) {
  CLI::App& command = *serve.add_subcommand("gradio", "Web page to chat with a model or a server");
  command.prefix_command();  // the page has its own flags, --help included
  command.set_help_flag();
  command.callback([&context, &command] {
    context.run = [&context, &command, arguments = command.remaining()] {
      return run_gradio(command, arguments, context.console);
    };
  });
}

}  // namespace lmdeploy
