#include "lmdeploy/cli/model_arguments.h"

#include <unistd.h>

#include <ostream>

#include "lmdeploy/cli/environment.h"
#include "lmdeploy/cli/interrupts.h"
#include "lmdeploy/cli/progress_bar.h"
#include "lmdeploy/cli/terminal_mode.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/text/chat/chat_template.h"

namespace lmdeploy {

std::string locate_model(const ModelRequest& request, const Console& console) {
  if (!is_hub_model(request.model)) return fetch_model(request, {});
  ProgressBar bar(console.err, "Downloading " + request.model, terminal_columns(STDERR_FILENO));
  Interrupts interrupts;
  const auto progress = [&](const HubStatus& status) {
    if (interrupts.take())
      throw Error(ErrorCode::kClosed,
                  "the download was stopped; what has arrived is kept, and the same command goes on");
    bar.update(status.done_bytes, status.total_bytes);
  };
  const auto warn = [&](const std::string& line) { console.err << "warning: " << line << std::endl; };
  return fetch_model(request, read_hub_config(), {progress, warn, {}});
}

void locate_models(PipelineConfig& config, const Console& console) {
  config.local_path = locate_model({config.model_path, config.revision, config.download_dir}, console);
  if (config.speculative && !config.speculative->model.empty())
    config.speculative->local_path =
        locate_model({config.speculative->model, "", config.download_dir}, console);
}

void require_template_name(const std::string& name) {
  if (is_chat_template_name(name)) return;
  std::string list;
  for (const std::string& known : chat_template_names()) list += (list.empty() ? "" : " ") + known;
  throw Error(ErrorCode::kInvalidArgument, cat("there is no chat template ", name, "; there are: ", list));
}

}  // namespace lmdeploy
