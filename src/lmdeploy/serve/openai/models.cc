// GET /v1/models, and the routes of OpenAI that no model here can serve.
#include "lmdeploy/http/request_id.h"
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/generation.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/routes.h"

namespace lmdeploy {
namespace {

JsonObject card(const std::string& name, const std::string& root, int64_t created, const Pipeline& pipeline) {
  const JsonObject permission{{"id", "modelperm-" + http::random_name(22)},
                              {"object", "model_permission"},
                              {"created", created},
                              {"allow_create_engine", false},
                              {"allow_sampling", true},
                              {"allow_logprobs", true},
                              {"allow_search_indices", true},
                              {"allow_view", true},
                              {"allow_fine_tuning", false},
                              {"organization", "*"},
                              {"group", nullptr},
                              {"is_blocking", false}};
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "lmdeploy"},
          {"root", root},
          {"parent", nullptr},
          {"max_model_len", pipeline.session_len()},
          {"permission", JsonArray{permission}}};
}

}  // namespace

http::Response list_models(Service& service, const http::Request&) {
  const auto pipeline = service.pipeline();
  const int64_t created = unix_time();
  JsonArray data;
  for (const std::string& name : service.options().model_names)
    data.push_back(card(name, service.model_name(), created, *pipeline));
  return json_response(JsonObject{{"object", "list"}, {"data", std::move(data)}});
}

http::Response show_model(Service& service, const http::Request& request) {
  constexpr std::string_view kFolder = "/v1/models/";
  const std::string name = service.checked_model(request.url.path.substr(kFolder.size()));
  return json_response(card(name, service.model_name(), unix_time(), *service.pipeline()));
}

const Fields& embedding_fields() {
  static const Fields fields = {{"model", FieldType::kString, "Name of the model"},
                                {"input", FieldType::kTextOrIds, "Texts"}};
  return fields;
}

http::Response embeddings(Service&, const http::Request&) {
  throw ApiError(
      {400,
       "Unsupported by turbomind. This model generates text; serve embeddings by a program made for them",
       {},
       "unsupported_feature"});
}

}  // namespace lmdeploy
