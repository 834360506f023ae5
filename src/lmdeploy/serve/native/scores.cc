// POST /get_ppl, /pooling.
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/routes.h"

namespace lmdeploy {
namespace {

/// A text, ids, or lists of them.
std::vector<std::vector<int>> read_inputs(const Json& input, const Pipeline& pipeline) {
  RunOptions raw;
  raw.do_preprocess = false;
  const auto encode = [&](const Json& item, const std::string& param) {
    if (item.is_string()) return pipeline.preview(std::string(item.get_string()), raw).token_ids;
    return pipeline.preview(read_ids(item, param), raw).token_ids;
  };
  const JsonArray* array = input.if_array();
  if (array == nullptr || array->empty() || (*array)[0].is_number()) return {encode(input, "input")};
  std::vector<std::vector<int>> inputs;
  for (const Json& item : *array) inputs.push_back(encode(item, cat("input[", inputs.size(), "]")));
  return inputs;
}

Json ppl_answer(const std::vector<double>& values, bool single) {
  JsonObject body;
  body["ppl"] = single ? Json(values.at(0)) : Json(JsonArray(values.begin(), values.end()));
  return body;
}

}  // namespace

const Fields& ppl_fields() {
  static const Fields fields = {{"input", FieldType::kTextOrIds, "A text or token ids, or several", true}};
  return fields;
}

http::Task<> get_ppl(Service& service, http::Exchange& exchange) {
  const Body body(exchange.request(), ppl_fields());
  const auto place = co_await service.admission().enter(exchange);
  const std::shared_ptr<Pipeline> pipeline = service.pipeline();
  const Json& input = *body.find("input");
  const std::vector<std::vector<int>> inputs = read_inputs(input, *pipeline);
  std::vector<double> values;
  co_await exchange.offload([&] { values = pipeline->get_ppl(inputs); });
  const bool single = input.is_string() || (input.as_array().size() > 0 && input.get_array()[0].is_number());
  co_await exchange.respond(json_response(ppl_answer(values, single)));
}

const Fields& pooling_fields() {
  static const Fields fields = {{"model", FieldType::kString, "Name of the model"},
                                {"input", FieldType::kTextOrIds, "A text or token ids, or several"}};
  return fields;
}

http::Response pooling(Service&, const http::Request&) {
  throw ApiError(
      {400,
       "pooling: this model generates text; scores need a reward model, which this version does not have",
       {},
       "unsupported_feature"});
}

}  // namespace lmdeploy
