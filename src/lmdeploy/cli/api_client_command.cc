// `lmdeploy serve api_client`: the conversation of `lmdeploy chat` with a model that a server has.
#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <ostream>

#include "lmdeploy/cli/chat_loop.h"
#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/integer_range.h"
#include "lmdeploy/cli/interrupts.h"
#include "lmdeploy/cli/line_reader.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json_events.h"
#include "lmdeploy/hub/http_client.h"

namespace lmdeploy {
namespace {

constexpr int kMaxNewTokens = 512;  // of one answer
constexpr const char* kHowToChat =
    "Two Enters send a message. `end` starts a new conversation, `exit` leaves. Ctrl-C stops an answer.";

struct ApiClientFlags {
  std::string url, api_key;
  int64_t session_id = 1;
};

/// With or without a scheme. Throws Error.
std::string server_url(const std::string& given) {
  std::string url = given.find("://") == std::string::npos ? "http://" + given : given;
  while (url.ends_with('/')) url.pop_back();
  if (url_origin(url).empty())
    throw Error(ErrorCode::kInvalidArgument,
                cat("server address: found ", given, "; expected http://HOST:PORT"));
  return url;
}

std::string text_in(const Json& value, const char* name) {
  const JsonObject* object = value.if_object();
  const Json* text = object == nullptr ? nullptr : object->if_contains(name);
  return text == nullptr || !text->is_string() ? "" : std::string(text->get_string());
}

/// The server's own words where it has some.
std::string reason_of(const HttpReply& reply) {
  std::string words;
  try {
    const Json body = parse_json(reply.error_body, "answer");
    words = text_in(body, "message");
    if (words.empty() && body.is_object() && body.get_object().contains("error"))
      words = text_in(body.get_object().at("error"), "message");
  } catch (const Error&) {
    words = reply.error_body.substr(0, 200);
  }
  return cat("status ", reply.status, words.empty() ? "" : ": " + words);
}

struct Interrupted {};

/// One conversation: in a session that the server keeps, or with servers that keep none in messages that are
/// sent again each time.
class RemoteChat {
 public:
  RemoteChat(const ApiClientFlags& flags, Interrupts& interrupts, Console console)
      : url_(server_url(flags.url)),
        secret_(flags.api_key.empty() ? "" : "Authorization: Bearer " + flags.api_key),
        session_id_(flags.session_id),
        interrupts_(interrupts),
        console_(console),
        client_(patience(), read_hub_certificates(), [this] { check_interrupt(); }) {}

  /// Prints the answer as it comes. A refusal is printed too; throws Error(kIo) when the server is not there.
  void answer(const std::string& message) {
    interrupts_.take();  // from before the question
    try {
      if (!keeps_sessions_ || !answer_in_session(message)) answer_to_messages(message);
    } catch (const Interrupted&) {
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kIo) throw;
      console_.err << "error: " << error.what() << std::endl;
    }
    console_.out << '\n';
    check_written(console_.out);
  }

  /// The next turn begins a new conversation.
  void end() {
    messages_.clear();
    if (!keeps_sessions_ || !session_begun_) return;
    session_begun_ = false;
    post(
        "/v1/chat/interactive",
        {{"prompt", ""}, {"session_id", session_id_}, {"interactive_mode", false}, {"request_output_len", 0}},
        {});
  }

 private:
  static HubPatience patience() {
    HubPatience patience;
    patience.stall_timeout_s = 600;  // a long prompt takes its time before the first word
    return patience;
  }

  void check_interrupt() {
    if (interrupts_.take()) throw Interrupted();
  }

  HttpReply post(const std::string& path, const JsonObject& body, const HttpSink& sink) {
    HttpRequest request;
    request.url = url_ + path;
    request.secret = secret_;
    request.json = to_json_text(body);
    HttpReply reply = client_.send(request, sink);
    if (reply.status == 0)
      throw Error(ErrorCode::kIo, cat(url_, ": the server does not answer: ", reply.trouble));
    return reply;
  }

  /// Prints what `text_of` finds in each part of a stream. Throws Error for a refusal other than 404.
  HttpReply stream(const std::string& path, JsonObject body,
                   const std::function<std::string(const Json&)>& text_of) {
    body["stream"] = true;
    JsonEvents events(url_ + path);
    HttpReply reply = post(path, body, [&](const HttpReply&, std::string_view bytes) {
      check_interrupt();
      events.push(bytes, [&](const Json& part) {
        if (part.is_object() && part.get_object().contains("error"))
          throw Error(ErrorCode::kInternal, text_in(part.get_object().at("error"), "message"));
        console_.out << text_of(part) << std::flush;
        check_written(console_.out);
      });
    });
    if (reply.status != 404 && !reply.ok())
      throw Error(ErrorCode::kInternal, reply.trouble.empty() ? reason_of(reply) : reply.trouble);
    return reply;
  }

  /// False: the server keeps no sessions.
  bool answer_in_session(const std::string& message) {
    bool full = false;
    const auto text_of = [&](const Json& part) {
      full = text_in(part, "finish_reason") == "length" && text_in(part, "text").empty();
      return text_in(part, "text");
    };
    const HttpReply reply = stream("/v1/chat/interactive",
                                   {{"prompt", message},
                                    {"session_id", session_id_},
                                    {"interactive_mode", true},
                                    {"request_output_len", kMaxNewTokens}},
                                   text_of);
    keeps_sessions_ = reply.status != 404;
    session_begun_ = keeps_sessions_;
    if (full)
      console_.out << "\nWARNING: the answer was cut off: it reached " << kMaxNewTokens
                   << " tokens, or the session is full and ends with `end`.";
    return keeps_sessions_;
  }

  void answer_to_messages(const std::string& message) {
    if (model_.empty()) model_ = first_model();
    JsonArray messages = messages_;  // a turn that fails or is stopped is not part of the conversation
    messages.push_back(JsonObject{{"role", "user"}, {"content", message}});
    std::string answer;
    const auto text_of = [&](const Json& part) {
      const JsonObject* object = part.if_object();
      const Json* choices = object == nullptr ? nullptr : object->if_contains("choices");
      if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return std::string();
      const JsonObject* choice = choices->get_array()[0].if_object();
      const Json* delta = choice == nullptr ? nullptr : choice->if_contains("delta");
      const std::string text = delta == nullptr ? "" : text_in(*delta, "content");
      answer += text;
      return text;
    };
    const HttpReply reply =
        stream("/v1/chat/completions",
               {{"model", model_}, {"messages", messages}, {"max_tokens", kMaxNewTokens}}, text_of);
    if (reply.status == 404) throw Error(ErrorCode::kNotFound, reason_of(reply));
    messages.push_back(JsonObject{{"role", "assistant"}, {"content", answer}});
    messages_ = std::move(messages);
  }

  std::string first_model() {
    HttpRequest request;
    request.url = url_ + "/v1/models";
    request.secret = secret_;
    std::string text;
    const HttpReply reply =
        client_.send(request, [&](const HttpReply&, std::string_view bytes) { text += bytes; });
    if (!reply.ok())
      throw Error(ErrorCode::kInternal,
                  cat(request.url, ": ", reply.trouble.empty() ? reason_of(reply) : reply.trouble));
    const Json body = parse_json(text, request.url);
    const Json* data = body.is_object() ? body.get_object().if_contains("data") : nullptr;
    const bool any = data != nullptr && data->is_array() && !data->get_array().empty();
    const std::string name = any ? text_in(data->get_array()[0], "id") : "";
    if (name.empty()) throw Error(ErrorCode::kInvalidData, cat(request.url, ": it lists no model"));
    return name;
  }

  const std::string url_, secret_;
  const int64_t session_id_;
  Interrupts& interrupts_;
  const Console console_;
  HttpClient client_;
  bool keeps_sessions_ = true, session_begun_ = false;
  std::string model_;   // of servers that keep no sessions
  JsonArray messages_;  // likewise
};

int run_api_client(const ApiClientFlags& flags, const CommandContext& context) {
  const Console& console = context.console;
  Interrupts interrupts;
  RemoteChat chat(flags, interrupts, console);
  const std::unique_ptr<LineReader> reader = make_line_reader(console.out, interrupts);
  while (const std::optional<std::string> message = read_message(*reader, console.out, "")) {
    if (*message == "exit") break;
    if (*message == "end")
      chat.end();
    else if (!is_blank(*message))
      chat.answer(*message);
  }
  chat.end();
  console.out << "exiting...\n";
  check_written(console.out);
  return 0;
}

}  // namespace

void add_api_client_command(CLI::App& serve, CommandContext& context) {
  CLI::App& command =
      *serve.add_subcommand("api_client", "Talk to the model of an api_server in the terminal");
  command.footer(kHowToChat);
  const auto flags = std::make_shared<ApiClientFlags>();
  command.add_option("api_server_url", flags->url, "http://HOST:PORT")->required()->type_name("URL");
  command.add_option("--api-key", flags->api_key, "Key that the server asks for");
  command.add_option("--session-id", flags->session_id, "Session of the server that holds the conversation")
      ->default_str("1")
      ->type_name("INT")
      ->transform(integer_in(0, std::numeric_limits<int>::max()));
  command.callback(
      [&context, flags] { context.run = [&context, flags] { return run_api_client(*flags, context); }; });
}

}  // namespace lmdeploy
