// Arguments as users write them, brought into the one spelling that the parser knows.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace lmdeploy {

/// Ends the program with code 2: the command line itself is wrong.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the words of a command line may be: long flags (without the dashes) and sub-commands.
struct CommandNames {
  std::vector<std::string> flags;
  std::map<std::string, CommandNames> commands;
};

/// In flag names underscores become hyphens (up to the first dot: what follows is a key of the user's), and a
/// prefix that only one flag of the command has becomes that flag. Values, short flags and all that follows
/// "--" stay as they are; unknown flags too, for the parser to complain about. Throws UsageError for a prefix
/// of several flags.
std::vector<std::string> normalize_arguments(const std::vector<std::string>& arguments,
                                             const CommandNames& program);

}  // namespace lmdeploy
