// Flags with several values on the command line.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lmdeploy {

struct ListFlag {
  std::string name;  // "--api-keys"
  std::string help;
  std::string item;       // what one value is, for messages: "key"
  bool distinct = false;  // no value twice
};

/// The values are apart by blanks or commas; blanks around them are not part of them. An empty one, as of a
/// variable that is not set, is a usage error, and so is one given twice where they must differ. `values`
/// must outlive the parsing.
void add_list_flag(CLI::App& command, const ListFlag& flag, std::vector<std::string>& values);

/// When a required argument is missing: the list flag that seems to have taken it, as the end of a message;
/// empty: none.
std::string taken_by_list_flag(const CLI::App& command);

}  // namespace lmdeploy
