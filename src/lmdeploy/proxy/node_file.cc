#include "lmdeploy/proxy/node_file.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lmdeploy/core/error.h"

namespace lmdeploy::proxy {

std::vector<std::pair<std::string, NodeStatus>> read_node_file(const std::string& path) {
  std::vector<std::pair<std::string, NodeStatus>> nodes;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nodes;
  const Json json = read_json_file(path);
  if (!json.is_object())
    throw Error(ErrorCode::kInvalidData,
                cat(path, ": found ", json_kind(json), ", expected an object of nodes"));
  for (const auto& [key, value] : json.get_object()) {
    const std::string url(key);
    const std::string where = cat(path, ": node \"", url, "\"");
    http::parse_url(url);
    const Json status = value.is_string() ? parse_json(std::string_view(value.get_string()), where) : value;
    nodes.emplace_back(url, parse_status(status, where));
  }
  return nodes;
}

void write_node_file(const std::string& path, const std::vector<Node>& nodes) {
  JsonObject object;
  for (const Node& node : nodes) object[node.url] = to_json_text(Json(status_json(node.status)));
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  const std::string part = cat(path, ".", ::getpid(), ".part");
  std::ofstream file(part, std::ios::trunc);
  file << to_json_text(Json(std::move(object))) << '\n';
  file.close();
  if (!file || ::rename(part.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    ::unlink(part.c_str());
    throw Error(ErrorCode::kIo, cat("cannot write ", path, ": ", why));
  }
}

}  // namespace lmdeploy::proxy
