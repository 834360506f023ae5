#include "lmdeploy/serve/openai/responses_request.h"

#include <algorithm>
#include <limits>

#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/sampling_fields.h"

namespace lmdeploy {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();

JsonObject message_of(const std::string& role, const std::string& content) {
  JsonObject message;
  message["role"] = role == "developer" ? "system" : role;
  message["content"] = content;
  return message;
}

/// A text, or parts of the types input_text, output_text and text.
std::string text_of(const Json& content, const std::string& where) {
  if (content.is_string()) return std::string(content.get_string());
  if (!content.is_array())
    refuse_field(where,
                 cat(where, ": found ", json_kind(content), "; expected a string or an array of parts"));
  std::string joined;
  for (size_t i = 0; i < content.get_array().size(); ++i) {
    const std::string at = cat(where, "[", i, "].");
    const JsonObject* part = content.get_array()[i].if_object();
    if (part == nullptr) refuse_field(at, cat(where, "[", i, "]: expected an object"));
    const std::string type = required_text(*part, "type", at);
    if (type != "input_text" && type != "output_text" && type != "text")
      refuse_field(at + "type", cat(at, "type: found ", type,
                                    "; expected input_text or output_text: this model takes no others"));
    joined += (i == 0 ? "" : "\n") + required_text(*part, "text", at);
  }
  return joined;
}

JsonObject call_message(const JsonObject& item, const std::string& where) {
  JsonObject function;
  function["name"] = required_text(item, "name", where);
  function["arguments"] = required_text(item, "arguments", where);
  JsonObject call;
  call["id"] = required_text(item, "call_id", where);
  call["type"] = "function";
  call["function"] = std::move(function);
  JsonObject message = message_of("assistant", "");
  message["tool_calls"] = JsonArray{std::move(call)};
  return message;
}

/// Calls that stand side by side are one message of the assistant.
void add_call(JsonArray& messages, JsonObject message) {
  if (!messages.empty()) {
    JsonObject& last = messages.back().as_object();
    if (last.at("role").as_string() == "assistant") {
      Json& calls = last["tool_calls"];
      if (!calls.is_array()) calls = JsonArray();
      calls.get_array().push_back(message.at("tool_calls").as_array().at(0));
      return;
    }
  }
  messages.push_back(std::move(message));
}

void read_item(const Json& value, const std::string& where, JsonArray& messages) {
  const JsonObject* item = value.if_object();
  if (item == nullptr) refuse_field(where, cat(where, ": expected an object"));
  const Json* type_value = item->if_contains("type");
  const std::string type =
      type_value != nullptr && type_value->is_string() ? std::string(type_value->get_string()) : "message";
  if (type == "message") {
    const std::string role = required_text(*item, "role", where + ".");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      refuse_field(where + ".role",
                   cat(where, ".role: found ", role, "; expected user, assistant, system or developer"));
    const Json* content = item->if_contains("content");
    if (content == nullptr) refuse_field(where + ".content", cat(where, ".content: the field is required"));
    messages.push_back(message_of(role, text_of(*content, where + ".content")));
  } else if (type == "function_call") {
    add_call(messages, call_message(*item, where + "."));
  } else if (type == "function_call_output") {
    const Json* output = item->if_contains("output");
    if (output == nullptr) refuse_field(where + ".output", cat(where, ".output: the field is required"));
    JsonObject result = message_of("tool", text_of(*output, where + ".output"));
    result["tool_call_id"] = required_text(*item, "call_id", where + ".");
    messages.push_back(std::move(result));
  } else if (type != "reasoning") {  // thoughts of earlier turns are not shown again
    refuse_field(where + ".type",
                 cat(where, ".type: found ", type,
                     "; expected message, function_call, function_call_output or reasoning"));
  }
}

JsonArray read_input(const Body& body) {
  JsonArray messages;
  if (const std::string instructions = body.text("instructions"); !instructions.empty())
    messages.push_back(message_of("system", instructions));
  const Json& input = *body.find("input");
  if (input.is_string()) {
    messages.push_back(message_of("user", std::string(input.get_string())));
    return messages;
  }
  if (!input.is_array() || input.get_array().empty())
    refuse_field("input", "input: expected a string or an array of items");
  for (size_t i = 0; i < input.get_array().size(); ++i)
    read_item(input.get_array()[i], cat("input[", i, "]"), messages);
  return messages;
}

ToolChoice read_tools(const Body& body) {
  const Json* tools = body.find("tools");
  JsonArray all;
  if (tools != nullptr)
    for (size_t i = 0; i < tools->as_array().size(); ++i) {
      const std::string where = cat("tools[", i, "].");
      const JsonObject* tool = tools->get_array()[i].if_object();
      if (tool == nullptr)
        refuse_field(cat("tools[", i, "]"),
                     cat("tools[", i, "]: found ", json_kind(tools->get_array()[i]), "; expected an object"));
      if (const std::string type = required_text(*tool, "type", where); type != "function")
        refuse_field(where + "type", cat(where, "type: found ", type,
                                         "; expected function: the server has no tools of its own"));
      JsonObject function;
      function["name"] = required_name(*tool, where);
      for (const char* key : {"description", "parameters"})
        if (const Json* part = tool->if_contains(key); part != nullptr && !part->is_null())
          function[key] = *part;
      JsonObject out;
      out["type"] = "function";
      out["function"] = std::move(function);
      all.push_back(std::move(out));
    }
  const Json* choice = body.find("tool_choice");
  if (choice != nullptr && choice->is_object()) {
    const std::string wanted = required_text(choice->get_object(), "name", "tool_choice.");
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].as_object().at("function").as_object().at("name").as_string() == wanted)
        return {JsonArray{all[i]}, true, wanted, i, ".parameters"};
    refuse_field("tool_choice", cat("tool_choice: there is no function ", wanted, " in tools"));
  }
  const std::string word = choice == nullptr     ? "auto"
                           : choice->is_string() ? std::string(choice->get_string())
                                                 : "";
  if (word != "auto" && word != "none" && (word != "required" || all.empty()))
    refuse_field("tool_choice", cat("tool_choice: found ", to_json_text(*choice),
                                    "; expected auto, none, with tools required, or a function"));
  if (all.empty() || word == "none") return {};
  return {.tools = std::move(all), .forced = word == "required", .parameters = ".parameters"};
}

void refuse_unsupported(const Body& body) {
  if (body.has("previous_response_id"))
    refuse_field("previous_response_id",
                 "previous_response_id: answers are not stored; send the whole conversation as input");
  if (body.flag("background", false))
    refuse_field("background", "background: not supported; leave the connection open");
  if (body.text("truncation", "disabled") != "disabled")
    refuse_field("truncation", "truncation: nothing is cut silently; expected disabled");
  if (body.has("conversation"))
    refuse_field("conversation",
                 "conversation: conversations are not stored; send the whole conversation as input");
  if (body.has("prompt"))
    refuse_field("prompt",
                 "prompt: templates of prompts are not stored; send their text as instructions or input");
}

constexpr const char* kIncludeLogprobs = "message.output_text.logprobs";

/// What may be added to an answer: log probabilities, and parts of items that no answer here has.
void read_include(const Body& body, ResponsesRequest& request) {
  constexpr std::string_view kNeverThere[] = {"reasoning.encrypted_content",  // thoughts are in plain text
                                              "web_search_call.results",
                                              "web_search_call.action.sources",
                                              "file_search_call.results",
                                              "code_interpreter_call.outputs",
                                              "computer_call_output.output.image_url",
                                              "message.input_image.image_url"};
  const std::vector<std::string> values = body.texts("include");
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == kIncludeLogprobs)
      request.logprobs = true;
    else if (std::find(std::begin(kNeverThere), std::end(kNeverThere), values[i]) == std::end(kNeverThere))
      refuse_field(cat("include[", i, "]"),
                   cat("include[", i, "]: found ", values[i], "; expected ", kIncludeLogprobs));
  }
  request.num_top_logprobs = static_cast<int>(body.integer("top_logprobs", 0));
  if (request.num_top_logprobs > 0 && !request.logprobs)
    refuse_field("top_logprobs", cat("top_logprobs: needs include with ", kIncludeLogprobs));
  if (request.logprobs) request.chat.generation.gen_config.logprobs = request.num_top_logprobs;
}

/// {"format": {"type": "json_schema", "name", "schema", "strict"}}: flat, where chat completions nest it.
void read_text_format(const Body& body, GenerationRequest& generation) {
  const Json* text = body.find("text");
  const Json* format = text == nullptr ? nullptr : text->as_object().if_contains("format");
  if (format == nullptr || format->is_null()) return;
  const JsonObject* object = format->if_object();
  if (object == nullptr)
    refuse_field("text.format", cat("text.format: found ", json_kind(*format), "; expected an object"));
  JsonObject nested = *object;
  if (required_text(*object, "type", "text.format.") == "json_schema") {
    JsonObject schema = *object;
    schema.erase("type");
    nested = JsonObject();
    nested["type"] = "json_schema";
    nested["json_schema"] = std::move(schema);
  }
  generation.gen_config.response_format = read_format(nested, "text.format");
  generation.schema_names.emplace_back("response_format.json_schema.schema", "text.format.schema");
}

JsonObject echo_of(const Body& body, const ResponsesRequest& request) {
  const auto given = [&](const char* name, Json fallback) {
    return body.has(name) ? *body.find(name) : fallback;
  };
  JsonObject reasoning, format, text;
  format["type"] = "text";
  text["format"] = std::move(format);
  if (body.has("text")) text = body.find("text")->as_object();
  reasoning["effort"] = nullptr;
  reasoning["summary"] = nullptr;
  JsonObject echo;
  echo["instructions"] = given("instructions", nullptr);
  echo["max_output_tokens"] = given("max_output_tokens", nullptr);
  echo["model"] = request.chat.model;
  echo["parallel_tool_calls"] = !request.chat.generation.one_call;
  echo["previous_response_id"] = nullptr;
  echo["reasoning"] = given("reasoning", reasoning);
  echo["store"] = false;
  echo["temperature"] = given("temperature", 0.7);
  echo["text"] = std::move(text);
  echo["tool_choice"] = given("tool_choice", "auto");
  echo["tools"] = given("tools", JsonArray());
  echo["top_logprobs"] = request.num_top_logprobs;
  echo["top_p"] = given("top_p", 1.0);
  echo["truncation"] = "disabled";
  echo["user"] = given("user", nullptr);
  echo["metadata"] = given("metadata", JsonObject());
  return echo;
}

}  // namespace

const Fields& responses_fields() {
  static const Fields fields = {
      {"model", FieldType::kString, "Name of the model; with one model it may be left out"},
      {"input", FieldType::kAny,
       "A text, or an array of items: messages, function_call, function_call_output", true},
      {"instructions", FieldType::kString, "The system prompt"},
      {"max_output_tokens", FieldType::kInteger, "Most tokens of the answer; null: as many as fit", false, 1},
      {"temperature", FieldType::kNumber, "0: always the best token", false, 0, 2, false, "0.7"},
      {"top_p", FieldType::kNumber, "Draw from the smallest set of tokens whose probabilities sum to this",
       false, 0, 1, true, "1.0"},
      {"stream", FieldType::kBool, "Send the answer in pieces", false, -kAny, kAny, false, "false"},
      {"tools", FieldType::kArray, "Functions that the model may call"},
      {"tool_choice", FieldType::kAny, "auto, none, required, or {\"type\": \"function\", \"name\": ...}"},
      {"parallel_tool_calls", FieldType::kBool, "false: one call at most", false, -kAny, kAny, false, "true"},
      {"reasoning", FieldType::kObject, "{\"effort\": ...}, for the chat template"},
      {"text", FieldType::kObject, "{\"format\": {\"type\": ...}}: text, json_object or json_schema"},
      {"truncation", FieldType::kString, "disabled"},
      {"include", FieldType::kStringOrArray,
       "message.output_text.logprobs: log probabilities of the answer's tokens"},
      {"top_logprobs", FieldType::kInteger, "Alternatives at each token, with include", false, 0, 20},
      {"previous_response_id", FieldType::kString, "Not supported"},
      {"conversation", FieldType::kAny, "Not supported"},
      {"prompt", FieldType::kAny, "Not supported"},
      {"background", FieldType::kBool, "Not supported", false, -kAny, kAny, false, "false"},
      {"store", FieldType::kBool, "Accepted: nothing is stored"},
      {"user_id", FieldType::kString, "Whose quota the request counts on, where the server has quotas"},
      {"metadata", FieldType::kObject, "Repeated in the answer"},
      {"user", FieldType::kString, "Repeated in the answer"},
  };
  return fields;
}

ResponsesRequest read_responses_request(const http::Request& http_request, const Service& service) {
  const Body body(http_request, responses_fields());
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  chat.model = service.checked_model(body);
  refuse_unsupported(body);
  chat.prompt = Json(read_input(body));
  chat.generation.user = body.text("user_id");
  chat.generation.one_call = !body.flag("parallel_tool_calls", true);
  if (const Json* reasoning = body.find("reasoning"))
    if (const Json* effort = reasoning->as_object().if_contains("effort");
        effort != nullptr && effort->is_string())
      chat.options.template_extra["reasoning_effort"] = *effort;
  GenerationConfig& config = chat.generation.gen_config;
  config.do_sample = true;
  config.temperature = static_cast<float>(body.number("temperature", 0.7));
  config.top_p = static_cast<float>(body.number("top_p", 1));
  config.top_k = 40;
  config.max_new_tokens = body.integer("max_output_tokens");
  chat.stream = body.flag("stream", false);
  chat.generation.prompt_field = "input";
  read_include(body, request);
  read_text_format(body, chat.generation);
  set_tools(chat, read_tools(body), service);
  request.echo = echo_of(body, request);
  return request;
}

}  // namespace lmdeploy
