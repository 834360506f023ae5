#include "lmdeploy/serve/openai/chat_request.h"

#include <array>
#include <limits>

#include "lmdeploy/pipeline/messages.h"
#include "lmdeploy/pipeline/tool_grammar.h"
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/sampling_fields.h"

namespace lmdeploy {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();

/// Fields inside other fields.
Field inside(const char* name, FieldType type, const char* description, const Fields& (*of)(),
             bool required = false) {
  return {name, type, description, required, -kAny, kAny, false, "null", {}, of};
}

const Fields& part_fields() {
  static const Fields fields = {{"type", FieldType::kString, "text", true},
                                {"text", FieldType::kString, "The text"}};
  return fields;
}

const Fields& called_function_fields() {
  static const Fields fields = {{"name", FieldType::kString, "Name of the function"},
                                {"arguments", FieldType::kTextOrObject, "JSON text, or the object itself"}};
  return fields;
}

const Fields& call_fields() {
  static const Fields fields = {
      {"id", FieldType::kString, "Of the call"},
      {"type", FieldType::kString, "function"},
      inside("function", FieldType::kObject, "Name and arguments", called_function_fields)};
  return fields;
}

const Fields& message_fields() {
  static const Fields fields = {
      {"role", FieldType::kString, "system, developer, user, assistant or tool", true},
      inside("content", FieldType::kTextOrMessages, "A text, or its parts", part_fields),
      {"name", FieldType::kString, "Of who speaks"},
      {"reasoning_content", FieldType::kString, "The assistant's thoughts"},
      inside("tool_calls", FieldType::kObjectArray, "The assistant's calls", call_fields),
      {"tool_call_id", FieldType::kString, "The call that a tool answers"}};
  return fields;
}

const Fields& function_fields() {
  static const Fields fields = {{"name", FieldType::kString, "Name of the function"},
                                {"description", FieldType::kString, "What it does"},
                                {"parameters", FieldType::kObject, "JSON schema of the arguments"},
                                {"strict", FieldType::kBool, "Accepted, not used"}};
  return fields;
}

const Fields& tool_fields() {
  static const Fields fields = {
      {"type", FieldType::kString, "function"},
      inside("function", FieldType::kObject, "Name, description and parameters", function_fields)};
  return fields;
}

const Fields& own_fields() {
  static const Fields fields = {
      {"model", FieldType::kString, "Name of the model; with one model it may be left out"},
      inside("messages", FieldType::kTextOrMessages, "The conversation; a text goes to the model as it is",
             message_fields),
      {"input_ids", FieldType::kIntegerArray, "The prompt as token ids, instead of messages"},
      {"n", FieldType::kInteger, "Answers", false, 1, 128, false, "1"},
  };
  return fields;
}

const Fields& more_fields() {
  static const Fields fields = {
      {"logprobs", FieldType::kBool, "Log probabilities of the answer's tokens", false, -kAny, kAny, false,
       "false"},
      {"top_logprobs", FieldType::kInteger, "Alternatives at each token, with logprobs", false, 0, 20},
      inside("tools", FieldType::kObjectArray, "Functions that the model may call", tool_fields),
      {"tool_choice", FieldType::kTextOrObject,
       "none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": ...}}"},
      {"parallel_tool_calls", FieldType::kBool, "false: one call at most", false, -kAny, kAny, false, "true"},
      {"reasoning_effort",
       FieldType::kString,
       "How long to think, for the chat template",
       false,
       -kAny,
       kAny,
       false,
       "null",
       {"none", "minimal", "low", "medium", "high", "xhigh", "max"}},
      {"enable_thinking", FieldType::kBool, "Old spelling of chat_template_kwargs.enable_thinking"},
      {"chat_template_kwargs", FieldType::kObject, "More variables for the chat template"},
      {"add_generation_prompt", FieldType::kBool, "Open the assistant's turn", false, -kAny, kAny, false,
       "true"},
      {"continue_final_message", FieldType::kBool, "The answer goes on inside the last message", false, -kAny,
       kAny, false, "false"},
      {"do_preprocess", FieldType::kBool, "false: a text goes to the model as it is", false, -kAny, kAny,
       false, "true"},
      {"return_token_ids", FieldType::kBool, "Adds gen_tokens to answers", false, -kAny, kAny, false,
       "false"},
      {"functions", FieldType::kObjectArray, "Not supported: use tools"},
      {"function_call", FieldType::kTextOrObject, "Not supported: use tool_choice"},
      {"modalities", FieldType::kStringOrArray, "Not supported beyond text"},
      {"audio", FieldType::kObject, "Not supported"},
      {"web_search_options", FieldType::kObject, "Not supported"},
      {"image_data", FieldType::kAny, "Not supported"},
      {"return_logprob", FieldType::kBool, "Not supported: use logprobs"},
      {"return_routed_experts", FieldType::kBool, "Not supported"},
      {"media_io_kwargs", FieldType::kObject, "Of pictures, which models here do not take; not used"},
      {"mm_processor_kwargs", FieldType::kObject, "Likewise"},
      {"metadata", FieldType::kObject, "Accepted, not used"},
      {"store", FieldType::kBool, "Accepted, not used"},
      {"service_tier", FieldType::kString, "Accepted, not used"},
      {"user", FieldType::kString, "Accepted, not used"},
  };
  return fields;
}

/// Of a field that is not supported: whether it asks for nothing.
bool is_idle(const Json& value) {
  if (value.is_bool()) return !value.get_bool();
  if (value.is_array()) return value.get_array().empty();
  return value.is_string() && value.get_string() == "none";
}

void refuse_unsupported(const Body& body) {
  constexpr std::pair<const char*, const char*> kUnsupported[] = {
      {"functions", "use tools"},
      {"function_call", "use tool_choice"},
      {"audio", "answers are text"},
      {"web_search_options", "there is no search here"},
      {"image_data", "this model takes no images"},
      {"return_logprob", "use logprobs"},
      {"return_routed_experts", "the engine does not keep them"},
  };
  for (const auto& [name, why] : kUnsupported)
    if (const Json* value = body.find(name); value != nullptr && !is_idle(*value))
      refuse_field(name, cat(name, ": not supported; ", why));
  for (const std::string& kind : body.texts("modalities"))
    if (kind != "text") refuse_field("modalities", cat("modalities: found ", kind, "; expected text"));
}

void read_logprobs(const Body& body, ChatRequest& request) {
  request.logprobs = body.flag("logprobs", false);
  request.num_top_logprobs = static_cast<int>(body.integer("top_logprobs", 0));
  if (!request.logprobs && request.num_top_logprobs > 0)
    refuse_field("top_logprobs", "top_logprobs: needs logprobs to be true");
  if (request.logprobs) request.generation.gen_config.logprobs = request.num_top_logprobs;
}

/// The name in {"type": "function", "function": {"name": ...}}, or in the function itself.
std::string function_name(const Json& tool, const std::string& param) {
  const JsonObject* object = tool.if_object();
  const Json* function = object == nullptr ? nullptr : object->if_contains("function");
  if (function != nullptr) object = function->if_object();
  const Json* name = object == nullptr ? nullptr : object->if_contains("name");
  if (name == nullptr || !name->is_string())
    refuse_field(param, cat(param, ": expected {\"type\": \"function\", \"function\": {\"name\": ...}}"));
  return std::string(name->get_string());
}

void check_tool(const Json& tool, const std::string& where) {
  const Json* type = tool.as_object().if_contains("type");
  if (type != nullptr && !type->is_null() && *type != "function")
    refuse_field(where + ".type", cat(where, ".type: found ", to_json_text(*type),
                                      "; expected function: the server has no tools of its own"));
  if (function_name(tool, where).empty())
    refuse_field(where + ".function.name",
                 cat(where, ".function.name: the text is empty; expected a function's name"));
}

ToolChoice named_tool(const JsonArray& tools, const Json& choice) {
  const std::string wanted = function_name(choice, "tool_choice");
  for (size_t i = 0; i < tools.size(); ++i)
    if (function_name(tools[i], "tools") == wanted) return {JsonArray{tools[i]}, true, wanted, i};
  refuse_field("tool_choice", cat("tool_choice: there is no function \"", wanted, "\" in tools"));
}

ToolChoice read_tools(const Body& body) {
  const Json* tools = body.find("tools");
  const Json* choice = body.find("tool_choice");
  const bool none = tools == nullptr || tools->as_array().empty();
  if (!none)
    for (size_t i = 0; i < tools->get_array().size(); ++i)
      check_tool(tools->get_array()[i], cat("tools[", i, "]"));
  if (choice == nullptr) return {.tools = none ? Json(nullptr) : *tools};
  if (choice->is_object()) {
    if (none) refuse_field("tool_choice", "tool_choice: names a function, but there are no tools");
    return named_tool(tools->get_array(), *choice);
  }
  const std::string word = choice->is_string() ? std::string(choice->get_string()) : "";
  if (word != "none" && word != "auto" && word != "required")
    refuse_field("tool_choice", cat("tool_choice: found ", to_json_text(*choice),
                                    "; expected none, auto, required or a function"));
  if (word == "required" && none)
    refuse_field("tool_choice", "tool_choice: required, but there are no tools");
  return {.tools = none || word == "none" ? Json(nullptr) : *tools, .forced = word == "required"};
}

/// Of OpenAI's newer models; older templates know it as system.
Json with_known_roles(const Json& messages) {
  Json known = messages;
  if (JsonArray* array = known.if_array())
    for (Json& message : *array) {
      Json* role = message.as_object().if_contains("role");
      if (role != nullptr && role->is_string() && role->get_string() == "developer") *role = "system";
    }
  return known;
}

void read_prompt(const Body& body, ChatRequest& request) {
  if (body.has("messages") == body.has("input_ids"))
    refuse_field("messages",
                 body.has("messages")
                     ? "messages, input_ids: expected one of the two"
                     : "messages: the field is required; expected a string or an array of messages");
  request.options.do_preprocess = body.flag("do_preprocess", true);
  if (body.has("input_ids")) {
    request.generation.prompt_field = "input_ids";
    request.prompt = body.ids("input_ids");
    return;
  }
  const Json& messages = *body.find("messages");
  if (messages.is_string()) {
    request.options.do_preprocess = false;
    request.prompt = std::string(messages.get_string());
    return;
  }
  if (!request.options.do_preprocess)
    refuse_field("do_preprocess", "do_preprocess: false needs messages to be a string");
  if (messages.get_array().empty())
    refuse_field("messages", "messages: the array is empty; expected at least one message");
  request.prompt = with_known_roles(messages);
}

void read_template_options(const Body& body, ChatRequest& request) {
  RunOptions& options = request.options;
  options.continue_final_message = body.flag("continue_final_message", false);
  options.add_generation_prompt = body.flag("add_generation_prompt", !options.continue_final_message);
  if (options.continue_final_message && options.add_generation_prompt)
    refuse_field("continue_final_message",
                 "continue_final_message and add_generation_prompt exclude each other");
  if (const Json* extra = body.find("chat_template_kwargs")) options.template_extra = extra->as_object();
  if (const Json* thinking = body.find("enable_thinking"))
    if (!options.template_extra.contains("enable_thinking"))
      options.template_extra["enable_thinking"] = *thinking;
  if (const Json* effort = body.find("reasoning_effort"))
    options.template_extra["reasoning_effort"] = *effort;
}

bool thinks(const JsonObject& extra) {
  const Json* value = extra.if_contains("enable_thinking");
  return value == nullptr || !value->is_bool() || value->get_bool();
}

void set_parser(ChatRequest& request, const Service& service) {
  request.generation.parser = service.parser_options(request.options.tools);
  if (!request.generation.parser) return;
  request.generation.parser->enable_thinking = thinks(request.options.template_extra);
  request.generation.gen_config.skip_special_tokens = false;  // some marks are special tokens
}

/// Names for errors in the schemas of a format of calls.
void name_schemas(const JsonArray& calls, const ToolChoice& choice, GenerationRequest& generation) {
  for (size_t i = 0; i < calls.size(); ++i)
    for (const auto& property : calls[i].as_object().at("properties").as_object())
      if (property.key() != "name")
        generation.schema_names.emplace_back(
            cat("response_format.json_schema.schema#/anyOf/", i, "/properties/", property.key()),
            cat("tools[", choice.first + i, "]", choice.parameters, "#"));
}

void force_call(ChatRequest& request, const ToolChoice& choice) {
  const std::string& function = choice.function;
  GenerationConfig& config = request.generation.gen_config;
  if (config.response_format.kind != ResponseFormat::Kind::kText)
    refuse_field("tool_choice",
                 "tool_choice: a call that must come and a response_format exclude each other");
  try {
    const bool several = function.empty() && !request.generation.one_call;
    config.response_format = tool_call_format(request.options.tools, function,
                                              request.generation.parser->names.tool_calls, several);
    request.generation.parser->only_calls = true;
    request.generation.parser->enable_thinking = false;  // the call is the first that comes
    name_schemas(config.response_format.schema.as_object().at("anyOf").as_array(), choice,
                 request.generation);
  } catch (const Error& error) {
    // As in LMDeploy, the model is then told of this function alone.
    if (error.code() == ErrorCode::kUnsupported && !function.empty()) return;
    refuse_field("tool_choice", cat("tool_choice: ", error.what()));
  }
}

/// Whether the prompt is another one without the tools. A template that refuses what is left needs them.
bool tells_of_tools(const std::string& prompt, const ChatRequest& request, const Pipeline& pipeline) {
  const auto* messages = std::get_if<Json>(&request.prompt);
  const auto chat_template = pipeline.chat_template();
  if (messages == nullptr || chat_template == nullptr) return true;  // written by the client
  RenderOptions options;
  options.add_generation_prompt = request.options.add_generation_prompt;
  options.continue_final_message = request.options.continue_final_message;
  options.extra = request.options.template_extra;
  try {
    return chat_template->render(normalize_messages(*messages), options) != prompt;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

const Fields& chat_fields() {
  static const Fields fields = own_fields() + sampling_fields() + stream_fields() + more_fields();
  return fields;
}

ChatRequest read_chat_request(const http::Request& http_request, const Service& service) {
  const Body body(http_request, {});
  ChatRequest request;
  static const Fields model = {own_fields()[0]};
  check_fields(body.object(), model);
  request.model = service.checked_model(body);
  check_fields(body.object(), chat_fields());
  request.generation.gen_config = read_generation_config(body, {});
  request.generation.gen_config.n = static_cast<int>(body.integer("n", 1));
  request.generation.session_id = body.integer("session_id", -1);
  request.generation.user = body.text("user_id");
  request.stream = body.flag("stream", false);
  request.include_usage = wants_usage(body);
  refuse_unsupported(body);
  read_logprobs(body, request);
  read_prompt(body, request);
  read_template_options(body, request);
  request.generation.one_call = !body.flag("parallel_tool_calls", true);
  set_tools(request, read_tools(body), service);
  request.return_token_ids = body.flag("return_token_ids", false);
  return request;
}

void set_tools(ChatRequest& request, ToolChoice choice, const Service& service) {
  request.options.tools = std::move(choice.tools);
  set_parser(request, service);
  if (choice.forced) force_call(request, choice);
}

void encode_prompt(ChatRequest& request, const Pipeline& pipeline) {
  PromptPreview prompt =
      preview_prompt(pipeline, request.prompt, request.options, request.generation.prompt_field);
  const std::optional<OutputParserOptions>& parser = request.generation.parser;
  const bool must_call = parser && parser->only_calls;  // the format of the answer names the functions
  if (!request.options.tools.is_null() && !must_call && !tells_of_tools(prompt.text, request, pipeline))
    refuse_field(
        "tools",
        "tools: the model's chat template has no place for them; use a model whose template has one, "
        "name another template (--chat-template), or send tool_choice none");
  if (request.generation.parser)
    request.generation.parser->prompt_opens_thought = prompt_opens_thought(prompt.text);
  request.generation.prompts.push_back(std::move(prompt.token_ids));
}

}  // namespace lmdeploy
