// The nodes in a file, so that a proxy that starts again knows them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lmdeploy/proxy/node_table.h"

namespace lmdeploy::proxy {

/// {"url": "{\"models\": [...], ...}", ...}: each status is JSON in a string; an object is taken too. No
/// file: no nodes. Throws Error(kInvalidData) naming file, node and key, Error(kIo) for what cannot be read.
std::vector<std::pair<std::string, NodeStatus>> read_node_file(const std::string& path);
/// The file is replaced as a whole. Throws Error(kIo).
void write_node_file(const std::string& path, const std::vector<Node>& nodes);

}  // namespace lmdeploy::proxy
