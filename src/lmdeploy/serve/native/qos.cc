// POST /v1/chat/completions_qos, /v1/completions_qos, /v1/chat/interactive_qos.
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/routes.h"

namespace lmdeploy {
namespace {

/// The second half are LMDeploy's words.
void check_quotas(const Service& service) {
  if (service.options().quotas) return;
  throw ApiError(
      {404,
       "the server was started without --qos-config-path (cannot parse qos engine config, this api is "
       "not work)",
       {},
       {}});
}

}  // namespace

http::Task<> chat_completions_qos(Service& service, http::Exchange& exchange) {
  check_quotas(service);
  return chat_completions(service, exchange);
}

http::Task<> completions_qos(Service& service, http::Exchange& exchange) {
  check_quotas(service);
  return completions(service, exchange);
}

http::Task<> chat_interactive_qos(Service& service, http::Exchange& exchange) {
  check_quotas(service);
  return chat_interactive(service, exchange);
}

}  // namespace lmdeploy
