// Flags of LMDeploy of which this version honours some values only: one table, and one refusal for the
// others.
#pragma once

#include <deque>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lmdeploy {

struct LimitedFlag {
  std::string name;   // "--tp"
  std::string type;   // "INT", "TEXT"; empty: a switch
  std::string group;  // of the help text
  std::string help;
  std::vector<std::string> choices;   // empty: any value; another one is a usage error
  std::vector<std::string> honoured;  // values (a switch: "true") that have their documented effect
  std::string instead;                // what to use, for the refusal
};

/// The limited flags of `chat`.
const std::vector<LimitedFlag>& chat_limited_flags();

/// Those of `serve api_server`.
const std::vector<LimitedFlag>& server_limited_flags();

/// An honoured value of --quant-policy as a number: "int8" or "8" is 8; "" is 0.
int quant_policy_number(const std::string& value);

/// The values given for a list of limited flags.
class LimitedFlags {
 public:
  /// Adds options that write into this object, which must outlive the parsing.
  void add_to(CLI::App& command, const std::vector<LimitedFlag>& flags);
  /// Throws Error(kUnsupported), "not supported yet: --tp 2; use ...", for the first value that is not
  /// honoured.
  void check() const;
  /// Whether a switch was given.
  bool given(const std::string& name) const;
  /// The last value given for an option; "": none.
  std::string value(const std::string& name) const;

 private:
  struct Given {
    const LimitedFlag* flag;
    std::vector<std::string> values;
    bool on = false;
  };
  std::deque<Given> given_;  // options hold references into it
};

}  // namespace lmdeploy
