// The flags that every command with a model of its own takes: engine, chat template, log level.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/cli/console.h"
#include "lmdeploy/cli/environment.h"
#include "lmdeploy/cli/limited_flags.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

/// Must outlive the parsing of the command it is added to.
struct EngineArguments {
  PipelineConfig config;
  std::string chat_template, log_level;
  std::optional<int64_t> num_draft_tokens;
  SpeculativeOptions speculative;
  LimitedFlags limited;

  /// `limited_flags`: which flags of LMDeploy the command knows beyond those honoured in full.
  void add_to(CLI::App& command, const std::vector<LimitedFlag>& limited_flags,
              const char* default_log_level);
  /// Refuses flags that are not honoured; says which have no effect. Fills in config.quant_policy.
  void apply(const Console& console);
};

/// --chat-template: a file, JSON text, or a name. Throws Error(kNotFound | kInvalidArgument).
ChatTemplateConfig read_chat_template(const std::string& value);
/// A name of the catalogue; throws Error(kInvalidArgument) that lists them.
ChatTemplateConfig named_chat_template(const std::string& name);

/// --log-level over TM_LOG_LEVEL over `fallback`. Throws Error naming the one that is wrong.
LogLevel chosen_log_level(const std::string& flag, const Environment& environment, const char* fallback);

}  // namespace lmdeploy
