#include "lmdeploy/serve/anthropic/messages_request.h"

#include <limits>

#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();

Fields prompt_fields() {
  return {{"model", FieldType::kString, "Name of the model; with one model it may be left out"},
          {"messages", FieldType::kArray, "The conversation: user and assistant in turn", true},
          {"system", FieldType::kAny, "The system prompt: a text, or an array of text blocks"},
          {"tools", FieldType::kArray, "Functions that the model may call: name, description, input_schema"},
          {"tool_choice", FieldType::kObject,
           "{\"type\": \"auto\"}, none, any, or {\"type\": \"tool\", \"name\": ...}; beside it "
           "\"disable_parallel_tool_use\": true for one call at most"},
          {"thinking", FieldType::kObject,
           "{\"type\": \"enabled\"} or {\"type\": \"disabled\"}, for the chat template"},
          {"output_config", FieldType::kObject,
           "format: as output_format; effort: how long to think, for the chat template"},
          {"output_format", FieldType::kObject,
           "{\"type\": \"json_schema\", \"schema\": ...}: what the answer must be"},
          {"mcp_servers", FieldType::kArray, "Not supported"}};
}

Fields answer_fields() {
  return {{"stream", FieldType::kBool, "Send the answer in pieces", false, -kAny, kAny, false, "false"},
          {"temperature", FieldType::kNumber, "0: always the best token", false, 0, 2, false, "1.0"},
          {"top_p", FieldType::kNumber,
           "Draw from the smallest set of tokens whose probabilities sum to this", false, 0, 1, true, "1.0"},
          {"top_k", FieldType::kInteger, "Draw from that many best tokens; 0: from all", false, 0,
           std::numeric_limits<int>::max(), false, "0"},
          {"stop_sequences", FieldType::kStringOrArray, "Texts that end the answer"},
          {"metadata", FieldType::kObject, "user_id: whose quota the request counts on"},
          {"service_tier", FieldType::kString, "Accepted, not used"}};
}

/// A text, or text blocks joined as the chat templates' parts are.
std::string joined_text(const Json& content, const std::string& where) {
  if (content.is_string()) return std::string(content.get_string());
  if (!content.is_array())
    refuse_field(where,
                 cat(where, ": found ", json_kind(content), "; expected a string or an array of blocks"));
  std::string joined;
  for (size_t i = 0; i < content.get_array().size(); ++i) {
    const std::string at = cat(where, "[", i, "]");
    const JsonObject* block = content.get_array()[i].if_object();
    if (block == nullptr) refuse_field(at, cat(at, ": expected a block"));
    const std::string type = required_text(*block, "type", at + ".");
    if (type != "text")
      refuse_field(at, cat(at, ".type: found ", type, "; expected text: this model takes nothing else here"));
    joined += (i == 0 ? "" : "\n") + required_text(*block, "text", at + ".");
  }
  return joined;
}

JsonObject message_of(const std::string& role, const std::string& content) {
  JsonObject message;
  message["role"] = role;
  message["content"] = content;
  return message;
}

/// One message of theirs is several of OpenAI's: results of tools are messages of their own.
class MessageReader {
 public:
  explicit MessageReader(JsonArray& out) : out_(out) {}

  void read(const Json& message, const std::string& where) {
    const JsonObject* object = message.if_object();
    if (object == nullptr) refuse_field(where, cat(where, ": expected an object"));
    const std::string role = required_text(*object, "role", where + ".");
    if (role != "user" && role != "assistant" && role != "system")
      refuse_field(where + ".role", cat(where, ".role: found ", role, "; expected user or assistant"));
    const Json* content = object->if_contains("content");
    if (content == nullptr || !(content->is_string() || content->is_array()))
      refuse_field(where + ".content", cat(where, ".content: expected a string or an array of blocks"));
    if (content->is_string()) {
      out_.push_back(message_of(role, std::string(content->get_string())));
      return;
    }
    text_.clear();
    calls_.clear();
    const size_t results_before = out_.size();
    for (size_t i = 0; i < content->get_array().size(); ++i)
      read_block(content->get_array()[i], cat(where, ".content[", i, "]"));
    const bool only_results = out_.size() > results_before && text_.empty() && calls_.empty();
    if (only_results) return;
    JsonObject whole = message_of(role, text_);
    if (!calls_.empty()) whole["tool_calls"] = std::move(calls_);
    out_.push_back(std::move(whole));
  }

 private:
  void read_block(const Json& value, const std::string& where) {
    const JsonObject* block = value.if_object();
    if (block == nullptr) refuse_field(where, cat(where, ": expected a block"));
    const std::string type = required_text(*block, "type", where + ".");
    if (type == "text") {
      text_ += (text_.empty() ? "" : "\n") + required_text(*block, "text", where + ".");
    } else if (type == "tool_use") {
      add_call(*block, where + ".");
    } else if (type == "tool_result") {
      const Json* content = block->if_contains("content");
      JsonObject result = message_of(
          "tool", content == nullptr || content->is_null() ? "" : joined_text(*content, where + ".content"));
      result["tool_call_id"] = required_text(*block, "tool_use_id", where + ".");
      out_.push_back(std::move(result));
    } else if (type != "thinking" &&
               type != "redacted_thinking") {  // thoughts of earlier turns are not shown again
      refuse_field(where,
                   cat(where, ".type: found ", type,
                       "; expected text, tool_use, tool_result or thinking: this model takes no others"));
    }
  }

  void add_call(const JsonObject& block, const std::string& where) {
    const Json* input = block.if_contains("input");
    JsonObject function;
    function["name"] = required_text(block, "name", where);
    function["arguments"] = to_json_text(input == nullptr ? Json(JsonObject()) : *input);
    JsonObject call;
    call["id"] = required_text(block, "id", where);
    call["type"] = "function";
    call["function"] = std::move(function);
    calls_.push_back(std::move(call));
  }

  JsonArray& out_;
  std::string text_;
  JsonArray calls_;
};

Json tool_of(const Json& tool, const std::string& where) {
  const JsonObject* object = tool.if_object();
  if (object == nullptr) refuse_field(where, cat(where, ": found ", json_kind(tool), "; expected an object"));
  const Json* type = object->if_contains("type");
  if (type != nullptr && !type->is_null() && *type != "custom")
    refuse_field(where + ".type", cat(where, ".type: found ", to_json_text(*type),
                                      "; expected custom: the server has no tools of its own"));
  JsonObject function;
  function["name"] = required_name(*object, where + ".");
  if (const Json* description = object->if_contains("description")) function["description"] = *description;
  const Json* schema = object->if_contains("input_schema");
  if (schema == nullptr || !schema->is_object())
    refuse_field(where + ".input_schema", cat(where, ".input_schema: expected an object"));
  function["parameters"] = *schema;
  JsonObject out;
  out["type"] = "function";
  out["function"] = std::move(function);
  return out;
}

std::string name_of(const Json& tool) {
  return std::string(tool.as_object().at("function").as_object().at("name").as_string());
}

ToolChoice read_tools(const Body& body) {
  const Json* tools = body.find("tools");
  JsonArray all;
  if (tools != nullptr)
    for (size_t i = 0; i < tools->as_array().size(); ++i)
      all.push_back(tool_of(tools->get_array()[i], cat("tools[", i, "]")));
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr) return {.tools = all.empty() ? Json(nullptr) : Json(all)};
  const std::string type = required_text(choice->as_object(), "type", "tool_choice.");
  if (type == "none" || (type == "auto" && all.empty())) return {};
  if (type == "auto") return {.tools = std::move(all)};
  if (type == "any" && !all.empty())
    return {.tools = std::move(all), .forced = true, .parameters = ".input_schema"};
  if (type != "tool")
    refuse_field("tool_choice", cat("tool_choice.type: ", type,
                                    " does not fit here; expected auto, none, or with tools any or tool"));
  const std::string wanted = required_text(choice->get_object(), "name", "tool_choice.");
  for (size_t i = 0; i < all.size(); ++i)
    if (name_of(all[i]) == wanted) return {JsonArray{all[i]}, true, wanted, i, ".input_schema"};
  refuse_field("tool_choice", cat("tool_choice: there is no tool ", wanted));
}

JsonArray read_conversation(const Body& body) {
  JsonArray messages;
  if (const Json* system = body.find("system"))
    messages.push_back(message_of("system", joined_text(*system, "system")));
  MessageReader reader(messages);
  const JsonArray& given = body.find("messages")->as_array();
  if (given.empty()) refuse_field("messages", "messages: the array is empty; expected at least one message");
  for (size_t i = 0; i < given.size(); ++i) reader.read(given[i], cat("messages[", i, "]"));
  return messages;
}

std::string user_of(const JsonObject& metadata) {
  const Json* user = metadata.if_contains("user_id");
  if (user == nullptr || user->is_null()) return {};
  if (!user->is_string())
    refuse_field("metadata.user_id",
                 cat("metadata.user_id: found ", json_kind(*user), "; expected a string"));
  return std::string(user->get_string());
}

void read_answer_options(const Body& body, MessagesRequest& request) {
  GenerationConfig& config = request.chat.generation.gen_config;
  config.do_sample = true;
  config.temperature = static_cast<float>(body.number("temperature", 1));
  config.top_p = static_cast<float>(body.number("top_p", 1));
  config.top_k = static_cast<int>(body.integer("top_k", 0));
  config.max_new_tokens = body.integer("max_tokens");
  request.stop_sequences = body.texts("stop_sequences");
  std::erase(request.stop_sequences, "");
  config.stop_words = request.stop_sequences;
  request.chat.stream = body.flag("stream", false);
  if (const Json* metadata = body.find("metadata"))
    request.chat.generation.user = user_of(metadata->as_object());
}

/// {"type": "json_schema", "schema": {...}}: flat, where OpenAI's response_format nests it.
void read_output_format(const Json& value, const std::string& where, GenerationRequest& generation) {
  if (generation.gen_config.response_format.kind != ResponseFormat::Kind::kText)
    refuse_field(where, cat(where, ": output_config.format says the same; leave one of both out"));
  const JsonObject* format = value.if_object();
  if (format == nullptr)
    refuse_field(where, cat(where, ": found ", json_kind(value), "; expected an object"));
  if (const std::string type = required_text(*format, "type", where + "."); type != "json_schema")
    refuse_field(where + ".type", cat(where, ".type: found ", type, "; expected json_schema"));
  const Json* schema = format->if_contains("schema");
  if (schema == nullptr || !schema->is_object())
    refuse_field(where + ".schema",
                 cat(where, ".schema: found ", schema == nullptr ? "nothing" : json_kind(*schema),
                     "; expected an object"));
  generation.gen_config.response_format.kind = ResponseFormat::Kind::kJsonSchema;
  generation.gen_config.response_format.schema = *schema;
  generation.schema_names.emplace_back("response_format.json_schema.schema", where + ".schema");
}

void read_output(const Body& body, ChatRequest& chat) {
  if (const Json* servers = body.find("mcp_servers"); servers != nullptr && !servers->as_array().empty())
    refuse_field("mcp_servers",
                 "mcp_servers: not supported; call them yourself and send what they say as tools");
  if (const Json* config = body.find("output_config")) {
    const JsonObject& object = config->as_object();
    if (const Json* format = object.if_contains("format"); format != nullptr && !format->is_null())
      read_output_format(*format, "output_config.format", chat.generation);
    if (const Json* effort = object.if_contains("effort"); effort != nullptr && !effort->is_null())
      chat.options.template_extra["reasoning_effort"] = required_text(object, "effort", "output_config.");
  }
  if (const Json* format = body.find("output_format"))
    read_output_format(*format, "output_format", chat.generation);
}

void check_version(const http::Request& request) {
  if (request.headers.find("anthropic-version") == nullptr)
    throw ApiError(
        {400, "anthropic-version: the header is required, for example 2023-06-01", "anthropic-version", {}});
}

}  // namespace

const Fields& messages_fields() {
  static const Fields fields =
      prompt_fields() + Fields{{"max_tokens", FieldType::kInteger, "Most tokens of the answer", true, 1}} +
      answer_fields();
  return fields;
}

const Fields& count_tokens_fields() {
  static const Fields fields = prompt_fields();
  return fields;
}

MessagesRequest read_messages_request(const http::Request& http_request, const Service& service,
                                      bool counting) {
  check_version(http_request);
  const Body body(http_request, counting ? count_tokens_fields() : messages_fields());
  MessagesRequest request;
  ChatRequest& chat = request.chat;
  chat.model = service.checked_model(body);
  chat.prompt = Json(read_conversation(body));
  if (const Json* thinking = body.find("thinking"))
    chat.options.template_extra["enable_thinking"] =
        required_text(thinking->as_object(), "type", "thinking.") != "disabled";
  read_answer_options(body, request);
  read_output(body, chat);
  if (const Json* choice = body.find("tool_choice"))
    chat.generation.one_call = flag_of(choice->as_object(), "disable_parallel_tool_use", "tool_choice.");
  set_tools(chat, read_tools(body), service);
  return request;
}

}  // namespace lmdeploy
