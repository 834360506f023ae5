// GET /openapi.json, made from the table of routes.
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/response_schemas.h"
#include "lmdeploy/serve/routes.h"

namespace lmdeploy {
namespace {

Json reference(const std::string& name) { return JsonObject{{"$ref", "#/components/schemas/" + name}}; }

JsonObject json_content(Json schema) {
  return {{"application/json", JsonObject{{"schema", std::move(schema)}}}};
}

JsonObject answer(std::string_view path) {
  JsonObject answer{{"description", "OK"}}, content;
  for (const ResponseContent& one : response_contents(path))
    content[one.media_type] = JsonObject{
        {"schema", one.schema.empty() ? Json(JsonObject{{"type", "string"}}) : reference(one.schema)}};
  if (!content.empty()) answer["content"] = std::move(content);
  return answer;
}

Json error_schema(std::string_view path) {
  const bool anthropic = path.starts_with("/v1/messages") || path.starts_with("/anthropic");
  return reference(anthropic ? "AnthropicError" : "ErrorResponse");
}

struct Tag {
  const char* name;
  const char* description;
  std::vector<std::string_view> prefixes;  // of paths
};

/// The last one has what the others have not.
const std::vector<Tag>& tags() {
  static const std::vector<Tag> table = {
      {"OpenAI",
       "In the words of OpenAI's clients",
       {"/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}},
      {"Anthropic", "In the words of Anthropic's clients", {"/v1/messages", "/anthropic"}},
      {"LMDeploy",
       "LMDeploy's own routes",
       {"/v1/chat/interactive", "/v1/encode", "/v1/decode", "/v1/render", "/generate", "/get_ppl",
        "/pooling"}},
      {"Server", "The server itself: state, memory, metrics", {}}};
  return table;
}

std::string tag_of(std::string_view path) {
  for (const Tag& tag : tags())
    for (const std::string_view prefix : tag.prefixes)
      if (path.starts_with(prefix)) return tag.name;
  return tags().back().name;
}

JsonArray tag_list() {
  JsonArray list;
  for (const Tag& tag : tags())
    list.push_back(JsonObject{{"name", tag.name}, {"description", tag.description}});
  return list;
}

JsonObject operation(const Route& route) {
  std::string id = std::string(route.method) + route.path;
  for (char& c : id)
    if (c == '/' || c == '.' || c == '{' || c == '}') c = '_';
  const JsonObject error{{"description", "An error"}, {"content", json_content(error_schema(route.path))}};
  JsonObject answers{{"200", answer(route.path)}, {"default", error}};
  if (std::string_view(route.path) == "/health") answers["503"] = answer(route.path);
  JsonObject operation{{"tags", JsonArray{tag_of(route.path)}},
                       {"summary", route.summary},
                       {"operationId", id},
                       {"responses", std::move(answers)}};
  if (route.fields != nullptr)
    operation["requestBody"] =
        JsonObject{{"required", true}, {"content", json_content(reference(route.body_name))}};
  const std::string_view path = route.path;
  if (const size_t open = path.find('{'); open != std::string_view::npos)
    operation["parameters"] = JsonArray{JsonObject{{"name", path.substr(open + 1, path.size() - open - 2)},
                                                   {"in", "path"},
                                                   {"required", true},
                                                   {"schema", JsonObject{{"type", "string"}}}}};
  operation["security"] = route.access == Access::kOpen
                              ? JsonArray()
                              : JsonArray{JsonObject{{"bearer", JsonArray()}}, JsonObject()};
  return operation;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return text;
}

JsonObject document(bool with_quotas) {
  JsonObject paths, schemas = response_schemas();
  for (const Route& route : routes()) {
    if (route.shown == Shown::kWithQuotas && !with_quotas) continue;
    Json& path = paths[route.path];
    if (!path.is_object()) path = JsonObject();
    path.get_object()[lower(route.method)] = operation(route);
    if (route.fields != nullptr) schemas[route.body_name] = json_schema_of(route.fields());
  }
  return {{"openapi", "3.1.0"},
          {"info", JsonObject{{"title", "LMDeploy"}, {"version", LMDEPLOY_VERSION}}},
          {"tags", tag_list()},
          {"paths", std::move(paths)},
          {"components",
           JsonObject{{"schemas", std::move(schemas)},
                      {"securitySchemes",
                       JsonObject{{"bearer", JsonObject{{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace

http::Response openapi_document(Service& service, const http::Request&) {
  if (!service.options().show_docs)
    throw ApiError(
        {404, "the description is off: the server was started with --disable-fastapi-docs", {}, {}});
  http::Response response;
  response.body = to_json_text(document(service.options().quotas.has_value()));
  return response;
}

}  // namespace lmdeploy
