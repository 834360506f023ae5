#include "lmdeploy/proxy/page.h"

#include <functional>

#include "lmdeploy/core/error.h"

namespace lmdeploy::proxy {
namespace {

/// The exposition format's escapes.
std::string escaped(const std::string& label) {
  std::string text;
  for (const char c : label) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text;
}

void add_head(std::string& text, const char* name, const char* type, const char* help) {
  text += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void add_per_node(std::string& text, const std::vector<Node>& nodes, const char* name, const char* type,
                  const char* help, const std::function<int64_t(const Node&)>& value) {
  add_head(text, name, type, help);
  for (const Node& node : nodes) text += cat(name, "{node=\"", escaped(node.url), "\"} ", value(node), "\n");
}

}  // namespace

std::string metrics_text(const ForwardContext& context) {
  const std::vector<Node> nodes = context.table.nodes();
  std::string text;
  add_per_node(text, nodes, "lmdeploy_proxy_node_up", "gauge", "Whether the node answers",
               [](const Node& node) { return node.up ? 1 : 0; });
  add_per_node(text, nodes, "lmdeploy_proxy_node_unfinished", "gauge", "Requests in flight at the node",
               [](const Node& node) { return node.status.unfinished; });
  add_per_node(text, nodes, "lmdeploy_proxy_node_answered_total", "counter",
               "Requests that the node has answered", [](const Node& node) { return node.num_answered; });
  add_per_node(text, nodes, "lmdeploy_proxy_node_failed_total", "counter",
               "Requests that the node has not answered", [](const Node& node) { return node.num_failed; });
  add_head(text, "lmdeploy_proxy_retries_total", "counter", "Requests tried at another node");
  text += cat("lmdeploy_proxy_retries_total ", context.num_retries.load(), "\n");
  add_head(text, "lmdeploy_proxy_broken_streams_total", "counter", "Answers that a node broke off");
  text += cat("lmdeploy_proxy_broken_streams_total ", context.num_broken.load(), "\n");
  return text;
}

std::string page_html(std::span<const Route> routes) {
  std::string rows;
  for (const Route& route : routes)
    rows += cat("<tr><td>", route.method, "</td><td><code>", route.path, "</code></td><td>", route.summary,
                "</td></tr>\n");
  return cat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>LMDeploy proxy</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n"
      "<style>body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
      "td{padding:.2em 1em .2em 0}</style></head>\n<body><h1>LMDeploy proxy</h1>\n<table>\n",
      rows, "</table></body></html>\n");
}

}  // namespace lmdeploy::proxy
