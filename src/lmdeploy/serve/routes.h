// All routes of the server in one table.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "lmdeploy/http/exchange.h"
#include "lmdeploy/serve/fields.h"
#include "lmdeploy/serve/service.h"

namespace lmdeploy {

/// In openapi.json.
enum class Shown { kAlways, kWithQuotas };
enum class Access { kKey, kOpen };  // kOpen: without an API key

/// What is known at once is a plain function; what waits or streams is a coroutine.
using RouteHandler = std::variant<http::Response (*)(Service&, const http::Request&),
                                  http::Task<> (*)(Service&, http::Exchange&)>;

struct Route {
  const char* method;
  const char* path;
  RouteHandler handle;
  const char* summary;
  const Fields& (*fields)() = nullptr;  // of the JSON body
  const char* body_name = "";           // its name in openapi.json
  Access access = Access::kKey;
  Shown shown = Shown::kAlways;
};

const std::vector<Route>& routes();

/// Whether the route's path is that one; a last part "{NAME}" stands for any text that is not empty, slashes
/// included.
bool is_path_of(const Route& route, std::string_view path);

// openai/
http::Response list_models(Service& service, const http::Request& request);
http::Response show_model(Service& service, const http::Request& request);
http::Task<> chat_completions(Service& service, http::Exchange& exchange);
http::Task<> responses(Service& service, http::Exchange& exchange);
http::Task<> completions(Service& service, http::Exchange& exchange);
http::Response embeddings(Service& service, const http::Request& request);
const Fields& completion_fields();
const Fields& embedding_fields();

// anthropic/
http::Task<> messages(Service& service, http::Exchange& exchange);
http::Response count_tokens(Service& service, const http::Request& request);
http::Response list_anthropic_models(Service& service, const http::Request& request);
http::Response show_anthropic_model(Service& service, const http::Request& request);

// native/
http::Response encode(Service& service, const http::Request& request);
http::Response decode(Service& service, const http::Request& request);
http::Response render_prompt(Service& service, const http::Request& request);
http::Task<> chat_interactive(Service& service, http::Exchange& exchange);
/// The same routes without _qos, where the server has quotas; else 404.
http::Task<> chat_completions_qos(Service& service, http::Exchange& exchange);
http::Task<> completions_qos(Service& service, http::Exchange& exchange);
http::Task<> chat_interactive_qos(Service& service, http::Exchange& exchange);
http::Task<> get_ppl(Service& service, http::Exchange& exchange);
http::Task<> pooling(Service& service, http::Exchange& exchange);
http::Task<> sleep(Service& service, http::Exchange& exchange);
http::Task<> wakeup(Service& service, http::Exchange& exchange);
http::Response is_sleeping(Service& service, const http::Request& request);
/// 501 with the reason.
http::Response not_implemented(Service& service, const http::Request& request);
http::Task<> generate(Service& service, http::Exchange& exchange);
http::Response health(Service& service, const http::Request& request);
http::Response metrics_page(Service& service, const http::Request& request);
http::Task<> terminate(Service& service, http::Exchange& exchange);
http::Response abort_request(Service& service, const http::Request& request);
const Fields& encode_fields();
const Fields& decode_fields();
const Fields& render_fields();
const Fields& interactive_fields();
const Fields& ppl_fields();
const Fields& pooling_fields();
const Fields& generate_fields();
const Fields& abort_fields();

http::Response openapi_document(Service& service, const http::Request& request);

}  // namespace lmdeploy
