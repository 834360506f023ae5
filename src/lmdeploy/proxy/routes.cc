#include "lmdeploy/proxy/routes.h"

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/http/request_id.h"
#include "lmdeploy/proxy/page.h"
#include "lmdeploy/proxy/passed_headers.h"
#include "lmdeploy/proxy/replies.h"

namespace lmdeploy::proxy {
namespace {

using http::Exchange;
using http::Task;

constexpr size_t kMaxReply = 4 << 20;  // bytes of a list of models

Task<> pass_on(Exchange& exchange, RouteContext& context) { co_await forward(exchange, context.forward); }

Task<> health(Exchange& exchange, RouteContext& context) {
  int64_t up = 0, out = 0;
  for (const Node& node : context.forward.table.nodes()) ++(node.up ? up : out);
  JsonObject body;
  body["status"] = up > 0 ? "healthy" : "no node";
  body["nodes_up"] = up;
  body["nodes_out"] = out;
  http::Response response = json_reply(std::move(body), up > 0 ? 200 : 503);
  if (up == 0) response.headers.set("Retry-After", "1");
  co_await exchange.respond(std::move(response));
}

Task<> status(Exchange& exchange, RouteContext& context) {
  JsonObject body;
  for (const Node& node : context.forward.table.nodes()) {
    JsonObject status = status_json(node.status);
    status["up"] = node.up;
    body[node.url] = std::move(status);
  }
  co_await exchange.respond(json_reply(std::move(body)));
}

/// {"url": "...", "status": {...} or null}
struct NodeBody {
  std::string url;
  std::optional<NodeStatus> status;
};

NodeBody parse_node(const http::Request& request) {
  NodeBody node;
  if (const std::string* url = request.url.find("node_url")) {  // older versions
    node.url = *url;
    return node;
  }
  const bool blank = request.body.find_first_not_of(" \t\r\n") == std::string::npos;
  const Json json = blank ? Json(nullptr) : parse_json(request.body, "request body");
  const Json* url = json.is_object() ? json.get_object().if_contains("url") : nullptr;
  if (url == nullptr || !url->is_string())
    throw Error(ErrorCode::kInvalidData,
                "request body: \"url\" is missing or no string; expected {\"url\": \"http://HOST:PORT\", "
                "\"status\": {...} or null}");
  node.url = std::string(url->get_string());
  const Json* status = json.get_object().if_contains("status");
  if (status != nullptr && !status->is_null())
    node.status = parse_status(*status, "request body: \"status\"");
  return node;
}

/// The node is this proxy, under another name perhaps.
class Loop : public Error {
 public:
  Loop() : Error(ErrorCode::kInvalidArgument, "the url leads back to this proxy itself") {}
};

/// GET of a path of the node; throws what the call throws, or Loop.
Task<std::string> ask_node(Exchange& exchange, RouteContext& context, const http::Url& where,
                           const char* path) {
  http::Call call(context.control);
  exchange.set_on_gone([&call] { call.cancel(); });
  http::ClientRequest request;
  request.target = path;
  add_via(request.headers, context.forward.name);
  if (const std::string* key = exchange.request().headers.find("Authorization"))
    request.headers.add("Authorization", *key);
  std::string body, failure;
  bool loops = false;
  try {
    co_await call.send(where, request);
    body = co_await http::read_all(call, kMaxReply);
    loops = call.status() == 508;
    if (call.status() != 200) failure = cat(http::origin(where), path, ": status ", call.status());
  } catch (const Error& error) {
    failure = error.what();
  }
  exchange.set_on_gone(nullptr);
  if (loops) throw Loop();
  if (!failure.empty()) throw Error(ErrorCode::kIo, failure);
  co_return body;
}

/// A node without a list of models is asked for it. What it had before stays known.
Task<> complete(Exchange& exchange, RouteContext& context, NodeBody& node) {
  const http::Url where = http::parse_url(node.url);
  if (node.status && !node.status->models.empty()) co_return;
  for (const Node& known : context.forward.table.nodes())
    if (known.url == node.url && !node.status) node.status = known.status;
  if (!node.status) node.status.emplace();
  node.status->unfinished = 0;
  const std::string answer = co_await ask_node(exchange, context, where, "/v1/models");
  const std::string name = node.url + "/v1/models";
  node.status->models = parse_model_list(parse_json(answer, name), name);
}

Task<> add_node(Exchange& exchange, RouteContext& context) {
  NodeBody node = parse_node(exchange.request());
  std::string failure, answer = "Added successfully";
  try {
    co_await complete(exchange, context, node);
    context.forward.table.add(node.url, std::move(*node.status));
    context.save();
  } catch (const Loop& loop) {
    failure = loop.what();
    answer = cat("Failed to add, please check the input url: ", failure, ".");
  } catch (const Error& error) {
    failure = error.what();
    answer = "Failed to add, please check the input url.";
  }
  if (!failure.empty()) LMD_LOG(kError, "adding node ", node.url, ": ", failure);
  co_await exchange.respond(json_reply(Json(answer)));
}

Task<> remove_node(Exchange& exchange, RouteContext& context) {
  const NodeBody node = parse_node(exchange.request());
  std::string failure;
  try {
    if (context.forward.table.remove(node.url)) context.save();
  } catch (const Error& error) {
    failure = error.what();
  }
  if (!failure.empty()) LMD_LOG(kError, "removing node ", node.url, ": ", failure);
  http::Response response = failure.empty()
                                ? json_reply("Deleted successfully")
                                : json_reply("Failed to delete, please check the input url.", 500);
  co_await exchange.respond(std::move(response));
}

/// Whether the node ends itself. It is no node any more then.
Task<bool> terminate(Exchange& exchange, RouteContext& context, const Node& node) {
  std::string failure;
  try {
    co_await ask_node(exchange, context, node.where, "/terminate");
    context.forward.table.remove(node.url);
    context.save();
  } catch (const Error& error) {
    failure = error.what();
  }
  if (!failure.empty()) LMD_LOG(kError, "terminating node ", node.url, ": ", failure);
  co_return failure.empty();
}

Task<> terminate_node(Exchange& exchange, RouteContext& context) {
  const NodeBody wanted = parse_node(exchange.request());
  bool known = false, done = false;
  const std::vector<Node> nodes = context.forward.table.nodes();
  for (const Node& node : nodes) {
    if (node.url != wanted.url) continue;
    known = true;
    done = co_await terminate(exchange, context, node);
  }
  http::Response response = done ? json_reply("Terminated successfully")
                                 : json_reply("Failed to terminate node URL", known ? 502 : 404);
  co_await exchange.respond(std::move(response));
}

Task<> terminate_all(Exchange& exchange, RouteContext& context) {
  bool all = true;
  const std::vector<Node> nodes = context.forward.table.nodes();
  for (const Node& node : nodes) {
    const bool done = co_await terminate(exchange, context, node);
    all = all && done;
  }
  http::Response response = all ? json_reply("All nodes terminated successfully")
                                : json_reply("Failed to terminate all nodes", 502);
  co_await exchange.respond(std::move(response));
}

JsonObject model_card(const std::string& model, int64_t now) {
  JsonObject permission;
  permission["id"] = "modelperm-" + http::random_name(22);
  permission["object"] = "model_permission";
  permission["created"] = now;
  for (const auto& [key, value] : {std::pair{"allow_create_engine", false},
                                   {"allow_sampling", true},
                                   {"allow_logprobs", true},
                                   {"allow_search_indices", true},
                                   {"allow_view", true},
                                   {"allow_fine_tuning", false}})
    permission[key] = value;
  permission["organization"] = "*";
  permission["group"] = nullptr;
  permission["is_blocking"] = false;
  JsonObject card;
  card["id"] = model;
  card["object"] = "model";
  card["created"] = now;
  card["owned_by"] = "lmdeploy";
  card["root"] = model;
  card["parent"] = nullptr;
  card["permission"] = JsonArray{std::move(permission)};
  return card;
}

Task<> models(Exchange& exchange, RouteContext& context) {
  const int64_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  JsonArray cards;
  for (const Node& node : context.forward.table.nodes())
    for (const std::string& model : node.status.models) cards.push_back(model_card(model, now));
  JsonObject body;
  body["object"] = "list";
  body["data"] = std::move(cards);
  co_await exchange.respond(json_reply(std::move(body)));
}

Task<> metrics(Exchange& exchange, RouteContext& context) {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics_text(context.forward);
  co_await exchange.respond(std::move(response));
}

Task<> not_split(Exchange& exchange, RouteContext&) {
  co_await exchange.respond(
      error_reply(exchange.request(), 501,
                  "prefill and decode on separate nodes are not supported: nodes are of the role Hybrid"));
}

Task<> openapi(Exchange& exchange, RouteContext&);
Task<> page(Exchange& exchange, RouteContext&);

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", pass_on, "Chat, at one of the nodes"},
    {"POST", "/v1/completions", pass_on, "Completion, at one of the nodes"},
    {"POST", "/v1/responses", pass_on, "Response, at one of the nodes"},
    {"POST", "/v1/messages", pass_on, "Message, at one of the nodes"},
    {"POST", "/v1/messages/count_tokens", pass_on, "Tokens of a message, at one of the nodes"},
    {"POST", "/v1/chat/completions_qos", pass_on, "Chat by the user's quota, at one of the nodes"},
    {"POST", "/v1/completions_qos", pass_on, "Completion by the user's quota, at one of the nodes"},
    {"POST", "/v1/embeddings", pass_on, "Embeddings, at one of the nodes"},
    {"POST", "/v1/encode", pass_on, "Tokens of a text, at one of the nodes"},
    {"POST", "/v1/decode", pass_on, "Text of tokens, at one of the nodes"},
    {"POST", "/v1/render", pass_on, "Prompt of a conversation, at one of the nodes"},
    {"POST", "/generate", pass_on, "Continuation of raw text or token ids, at one of the nodes"},
    {"POST", "/get_ppl", pass_on, "Loss of a text's tokens, at one of the nodes"},
    {"POST", "/pooling", pass_on, "Scores of a reward model, at one of the nodes"},
    {"GET", "/v1/models", models, "The models of all nodes"},
    {"GET", "/nodes/status", status, "All nodes: models, requests in flight, latencies, speed"},
    {"POST", "/nodes/add", add_node, "Add a node: {url, status}"},
    {"POST", "/nodes/remove", remove_node, "Remove a node: {url}"},
    {"POST", "/nodes/terminate", terminate_node, "End a node's process: {url}"},
    {"GET", "/nodes/terminate_all", terminate_all, "End the processes of all nodes"},
    {"POST", "/distserve/connection_warmup", not_split, "Not supported"},
    {"POST", "/distserve/gc", not_split, "Not supported"},
    {"GET", "/metrics", metrics, "Prometheus metrics"},
    {"GET", "/health", health, "200 when at least one node is up", true},
    {"GET", "/openapi.json", openapi, "This description", true},
    {"GET", "/", page, "A page that lists all this", true},
};

Task<> openapi(Exchange& exchange, RouteContext&) {
  JsonObject paths;
  for (const Route& route : kRoutes) {
    JsonObject& methods =
        (paths[route.path].is_null() ? paths[route.path] = JsonObject() : paths[route.path]).get_object();
    std::string method = route.method;
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    methods[method] = JsonObject{{"summary", route.summary},
                                 {"responses", JsonObject{{"200", JsonObject{{"description", "OK"}}}}}};
  }
  JsonObject body;
  body["openapi"] = "3.1.0";
  body["info"] = JsonObject{{"title", "LMDeploy proxy"}, {"version", "1"}};
  body["paths"] = std::move(paths);
  co_await exchange.respond(json_reply(std::move(body)));
}

Task<> page(Exchange& exchange, RouteContext&) {
  http::Response response;
  response.content_type = "text/html; charset=utf-8";
  response.body = page_html(kRoutes);
  co_await exchange.respond(std::move(response));
}

}  // namespace

const Route* find_route(const std::string& method, const std::string& path, std::string& allowed) {
  const std::string wanted = method == "HEAD" ? "GET" : method;
  for (const Route& route : kRoutes) {
    if (path != route.path) continue;
    if (wanted == route.method) return &route;
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  return nullptr;
}

}  // namespace lmdeploy::proxy
