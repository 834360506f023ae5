// Configuration and choice of chat templates.
#include "lmdeploy/text/chat/chat_template.h"

#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/text/chat/catalogue.h"
#include "lmdeploy/text/chat/chat_template_catalogue.h"
#include "lmdeploy/text/chat/chat_template_jinja.h"

namespace lmdeploy {
namespace {

using TextField = std::optional<std::string> ChatTemplateConfig::*;
constexpr std::pair<std::string_view, TextField> kTextFields[] = {
    {"system", &ChatTemplateConfig::system},
    {"meta_instruction", &ChatTemplateConfig::meta_instruction},
    {"eosys", &ChatTemplateConfig::eosys},
    {"user", &ChatTemplateConfig::user},
    {"eoh", &ChatTemplateConfig::eoh},
    {"assistant", &ChatTemplateConfig::assistant},
    {"eoa", &ChatTemplateConfig::eoa},
    {"tool", &ChatTemplateConfig::tool},
    {"eotool", &ChatTemplateConfig::eotool},
    {"separator", &ChatTemplateConfig::separator},
    {"capability", &ChatTemplateConfig::capability}};

// Prompts of these need code that knows the model; their checkpoints bring a Jinja template.
constexpr std::string_view kEncodersOnly[] = {"deepseek-v32", "deepseek-v3.2", "deepseek-v4"};

// The longest text that can be a path.
constexpr size_t kMaxPath = 4096;

[[noreturn]] void fail_value(std::string_view key, const Json& value, std::string_view expected) {
  throw Error(ErrorCode::kInvalidArgument, cat("chat template configuration: \"", key, "\" is ",
                                               json_kind(value), "; expected ", expected));
}

std::string text_value(std::string_view key, const Json& value) {
  if (!value.is_string()) fail_value(key, value, "text");
  return std::string(value.get_string());
}

void set_field(ChatTemplateConfig& config, std::string_view key, const Json& value) {
  for (const auto& [name, field] : kTextFields)
    if (key == name) {
      config.*field = text_value(key, value);
      return;
    }
  if (key == "model_name") {
    config.model_name = text_value(key, value);
  } else if (key == "stop_words") {
    if (!value.is_array()) fail_value(key, value, "a list of texts");
    config.stop_words.emplace();
    for (const Json& word : value.get_array()) config.stop_words->push_back(text_value(key, word));
  } else {
    std::string known = "model_name";
    for (const auto& [name, field] : kTextFields) known += cat(", ", name);
    throw Error(ErrorCode::kInvalidArgument, cat("chat template configuration: unknown key \"", key,
                                                 "\"; known: ", known, ", stop_words"));
  }
}

bool is_file(const std::string& path) {
  std::error_code error;  // a text that cannot be a path is none
  return path.size() <= kMaxPath && std::filesystem::is_regular_file(path, error);
}

// What the configuration changes on the checkpoint's own template.
JinjaOverrides overrides_of(const ChatTemplateConfig& config) {
  JinjaOverrides overrides;
  overrides.meta_instruction = config.meta_instruction;
  const std::string capability = config.capability.value_or("chat");
  if (capability != "chat" && capability != "completion" && capability != "python")
    throw Error(ErrorCode::kInvalidArgument,
                cat("capability \"", capability,
                    "\": a checkpoint's own chat template takes chat, completion and python; "
                    "infilling needs the template codellama"));
  overrides.raw_prompts = capability != "chat";
  overrides.stop_words = config.stop_words.value_or(std::vector<std::string>());
  return overrides;
}

// The template of a checkpoint whose configuration names none and brings no markers.
std::shared_ptr<const ChatTemplate> own_template(const std::string& model_path, ChatTemplateConfig config,
                                                 const std::string& jinja_source,
                                                 const std::string& bos_token, const std::string& eos_token) {
  if (!jinja_source.empty())
    return make_jinja_template(jinja_source, bos_token, eos_token, overrides_of(config));
  const std::string_view* name = match_model_path(model_path);
  if (name == nullptr)
    LMD_LOG(kWarning, model_path,
            ": the checkpoint has no chat template and its path matches none of the built-in ones; "
            "prompts are passed on without markers (choose one with --chat-template)");
  config.model_name = name != nullptr ? std::string(*name) : "base";
  return make_catalogue_template(config);
}

}  // namespace

std::string ChatTemplate::render_prompt(std::string_view prompt, const RenderOptions& options) const {
  return render(JsonArray{JsonObject{{"role", "user"}, {"content", prompt}}}, options);
}

ChatTemplateConfig ChatTemplateConfig::from_json(const std::string& path_or_text) {
  const bool from_file = is_file(path_or_text);
  const bool looks_like_json = path_or_text.find('{') != std::string::npos;
  if (!from_file && !looks_like_json)
    throw Error(ErrorCode::kInvalidArgument,
                cat("chat template configuration: ", path_or_text, " is neither a file nor JSON text"));
  const Json json =
      from_file ? read_json_file(path_or_text) : parse_json(path_or_text, "chat template configuration");
  if (!json.is_object()) fail_value("chat_template", json, "an object");
  ChatTemplateConfig config;
  for (const auto& [key, value] : json.get_object())
    if (!value.is_null()) set_field(config, key, value);
  return config;
}

std::shared_ptr<const ChatTemplate> make_catalogue_template(const ChatTemplateConfig& config) {
  for (const std::string_view name : kEncodersOnly)
    if (config.model_name == name)
      throw Error(ErrorCode::kUnsupported,
                  cat("chat template ", name,
                      " is not built in; use the checkpoint's own template (--chat-template hf)"));
  if (config.model_name == "hf")
    throw Error(ErrorCode::kInvalidArgument,
                "chat template hf: it stands for the checkpoint's own template, and there is none");
  if (const CatalogueEntry* entry = find_catalogue_entry(config.model_name))
    return make_layout(*entry, config);
  if (!config.model_name.empty())
    LMD_LOG(kWarning, "chat template ", config.model_name,
            " is not built in; using the given fields and nothing else (lmdeploy list shows the names)");
  static constexpr CatalogueEntry kBlank{.name = "custom"};
  return make_layout(kBlank, config);
}

std::shared_ptr<const ChatTemplate> choose_chat_template(const std::string& model_path,
                                                         const std::optional<ChatTemplateConfig>& config,
                                                         const std::string& jinja_source,
                                                         const std::string& bos_token,
                                                         const std::string& eos_token) {
  if (!config) return own_template(model_path, {}, jinja_source, bos_token, eos_token);
  const bool own = config->model_name == "hf" || (config->model_name.empty() && !changes_markers(*config));
  if (!own) return make_catalogue_template(*config);
  if (config->model_name == "hf" && changes_markers(*config))
    throw Error(ErrorCode::kInvalidArgument,
                "chat template hf: the markers of a checkpoint's own template cannot be changed");
  if (config->model_name == "hf" && jinja_source.empty())
    return make_catalogue_template(*config);  // says why not
  return own_template(model_path, *config, jinja_source, bos_token, eos_token);
}

}  // namespace lmdeploy
