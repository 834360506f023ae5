// POST /get_ppl, /pooling.
#include "lmdeploy/http/request_id.h"
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/generation.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/routes.h"

namespace lmdeploy {
namespace {

/// A text, ids, or lists of them.
std::vector<std::vector<int>> read_inputs(const Json& input, const Pipeline& pipeline) {
  RunOptions raw;
  raw.do_preprocess = false;
  const auto encode = [&](const Json& item, const std::string& param) {
    const Prompt prompt = item.is_string() ? Prompt(std::string(item.get_string())) : read_ids(item, param);
    return preview_prompt(pipeline, prompt, raw, param).token_ids;
  };
  const JsonArray* array = input.if_array();
  if (array == nullptr || array->empty() || (*array)[0].is_number()) return {encode(input, "input")};
  std::vector<std::vector<int>> inputs;
  for (const Json& item : *array) inputs.push_back(encode(item, cat("input[", inputs.size(), "]")));
  return inputs;
}

/// An error of the pipeline's, which calls its inputs "input_ids[i]", in the client's words.
[[noreturn]] void throw_naming_input(const Error& error, bool single) {
  ApiErrorInfo info = to_api_error(error.code(), error.what());
  constexpr std::string_view kIds = "input_ids[";
  const size_t at = info.message.find(kIds);
  if (info.status != 400 || at == std::string::npos) throw ApiError(std::move(info));
  const size_t end = info.message.find(']', at);
  info.param =
      single ? "input" : "input[" + info.message.substr(at + kIds.size(), end + 1 - at - kIds.size());
  info.message = info.param + info.message.substr(end + 1);
  throw ApiError(std::move(info));
}

bool is_single(const Json& input) {
  return input.is_string() || input.as_array().empty() || input.get_array()[0].is_number();
}

Json ppl_answer(const std::vector<double>& values, bool single) {
  JsonObject body;
  body["ppl"] = single ? Json(values.at(0)) : Json(JsonArray(values.begin(), values.end()));
  return body;
}

Json pooling_answer(const std::string& model, const std::vector<std::vector<int>>& inputs,
                    const std::vector<double>& scores) {
  JsonArray data;
  int64_t num_tokens = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    data.push_back(JsonObject{{"index", i}, {"object", "pooling"}, {"data", scores[i]}});
    num_tokens += static_cast<int64_t>(inputs[i].size());
  }
  return JsonObject{{"id", "pool-" + http::random_name(24)},
                    {"object", "list"},
                    {"created", unix_time()},
                    {"model", model},
                    {"data", std::move(data)},
                    {"usage", JsonObject{{"prompt_tokens", num_tokens}, {"total_tokens", num_tokens}}}};
}

}  // namespace

const Fields& ppl_fields() {
  static const Fields fields = {
      {"input", FieldType::kTextOrIds, "A text or token ids, or several", true},
      {"user_id", FieldType::kString, "Whose quota the request counts on, where the server has quotas"}};
  return fields;
}

http::Task<> get_ppl(Service& service, http::Exchange& exchange) {
  const Body body(exchange.request(), ppl_fields());
  const std::string user = body.text("user_id");
  const auto place = co_await service.admission().enter(exchange, user);
  const std::shared_ptr<Pipeline> pipeline = service.pipeline();
  const Json& input = *body.find("input");
  const std::vector<std::vector<int>> inputs = read_inputs(input, *pipeline);
  std::vector<double> values;
  const bool single = is_single(input);
  const auto score = [&] {
    try {
      values = pipeline->get_ppl(inputs);
    } catch (const Error& error) {
      throw_naming_input(error, single);
    }
  };
  co_await exchange.offload(score);
  co_await exchange.respond(json_response(ppl_answer(values, single)));
}

const Fields& pooling_fields() {
  static const Fields fields = {
      {"model", FieldType::kString, "Name of the model"},
      {"input", FieldType::kTextOrIds, "A text or token ids, or several", true},
      {"user_id", FieldType::kString, "Whose quota the request counts on, where the server has quotas"}};
  return fields;
}

http::Task<> pooling(Service& service, http::Exchange& exchange) {
  const Body body(exchange.request(), pooling_fields());
  const std::string model = service.checked_model(body);
  const std::string user = body.text("user_id");
  const auto place = co_await service.admission().enter(exchange, user);
  const std::shared_ptr<Pipeline> pipeline = service.pipeline();
  const std::vector<std::vector<int>> inputs = read_inputs(*body.find("input"), *pipeline);
  std::vector<double> scores;
  co_await exchange.offload([&] { scores = pipeline->get_reward_score(inputs); });
  co_await exchange.respond(json_response(pooling_answer(model, inputs, scores)));
}

}  // namespace lmdeploy
