// The report of `check_env`: the same keys as text, JSON and YAML.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lmdeploy/cli/env_facts.h"
#include "lmdeploy/cli/env_verdict.h"

namespace lmdeploy {

/// Key and value, in the order in which they are shown. Values may have several lines.
using EnvReport = std::vector<std::pair<std::string, std::string>>;

EnvReport make_report(const EnvFacts& facts, const Verdict& verdict);
/// "key: value" lines.
std::string report_text(const EnvReport& report);
/// Writes JSON or YAML as the extension says (json, yml, yaml); makes folders. Throws Error(kInvalidArgument)
/// for another one, kIo.
void write_report(const EnvReport& report, const std::string& path);

}  // namespace lmdeploy
