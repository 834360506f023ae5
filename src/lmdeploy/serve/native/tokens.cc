// POST /v1/encode, /v1/decode, /v1/render: text to ids, ids to text, messages to the prompt that the model
// would get.
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/openai/chat_request.h"
#include "lmdeploy/serve/routes.h"

namespace lmdeploy {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();

std::shared_ptr<const Tokenizer> tokenizer_of(const Pipeline& pipeline) {
  auto tokenizer = pipeline.tokenizer();
  if (tokenizer == nullptr)
    throw ApiError(
        {400, "the checkpoint has no tokenizer: prompts must be token ids", {}, "unsupported_feature"});
  return tokenizer;
}

std::vector<int> encoded(const Pipeline& pipeline, const std::string& text, bool with_template,
                         bool add_bos) {
  RunOptions options;
  options.do_preprocess = with_template;
  std::vector<int> ids = text.empty() && !with_template ? tokenizer_of(pipeline)->encode(text)
                                                        : pipeline.preview(text, options).token_ids;
  const auto bos = tokenizer_of(pipeline)->bos_id();
  if (!add_bos && bos && !ids.empty() && ids.front() == *bos) ids.erase(ids.begin());
  return ids;
}

}  // namespace

const Fields& encode_fields() {
  static const Fields fields = {
      {"input", FieldType::kStringOrArray, "A text, or several", true},
      {"do_preprocess", FieldType::kBool, "Apply the chat template", false, -kAny, kAny, false, "false"},
      {"add_bos", FieldType::kBool, "Keep the token that begins a text", false, -kAny, kAny, false, "true"}};
  return fields;
}

http::Response encode(Service& service, const http::Request& request) {
  const Body body(request, encode_fields());
  const auto pipeline = service.pipeline();
  const bool with_template = body.flag("do_preprocess", false), add_bos = body.flag("add_bos", true);
  JsonArray ids, lengths;
  for (const std::string& text : body.texts("input")) {
    const std::vector<int> one = encoded(*pipeline, text, with_template, add_bos);
    lengths.emplace_back(one.size());
    ids.push_back(ids_json(one));
  }
  const bool single = body.find("input")->is_string();
  return json_response(JsonObject{{"input_ids", single ? Json(ids.at(0)) : Json(ids)},
                                  {"length", single ? Json(lengths.at(0)) : Json(lengths)}});
}

const Fields& decode_fields() {
  static const Fields fields = {{"ids", FieldType::kIntegerArray, "Token ids", true},
                                {"skip_special_tokens", FieldType::kBool, "Leave special tokens out", false,
                                 -kAny, kAny, false, "true"}};
  return fields;
}

http::Response decode(Service& service, const http::Request& request) {
  const Body body(request, decode_fields());
  const std::vector<int> ids = body.ids("ids");
  RunOptions raw;
  raw.do_preprocess = false;
  if (!ids.empty())
    preview_prompt(*service.pipeline(), ids, raw, "ids");  // refuses ids outside the vocabulary
  return json_response(JsonObject{
      {"text", tokenizer_of(*service.pipeline())->decode(ids, body.flag("skip_special_tokens", true))}});
}

const Fields& render_fields() { return chat_fields(); }

http::Response render_prompt(Service& service, const http::Request& http_request) {
  const ChatRequest request = read_chat_request(http_request, service);
  const PromptPreview prompt =
      preview_prompt(*service.pipeline(), request.prompt, request.options, request.generation.prompt_field);
  return json_response(JsonObject{{"prompt", prompt.text},
                                  {"input_ids", ids_json(prompt.token_ids)},
                                  {"length", prompt.token_ids.size()}});
}

}  // namespace lmdeploy
