// Texts for people and for Prometheus.
#pragma once

#include <span>
#include <string>

#include "lmdeploy/proxy/routes.h"

namespace lmdeploy::proxy {

std::string metrics_text(const ForwardContext& context);
std::string page_html(std::span<const Route> routes);

}  // namespace lmdeploy::proxy
