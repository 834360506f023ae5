// What a GGUF file says, in the words of the hub: tensor names and config keys.
#pragma once

#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"
#include "lmdeploy/formats/gguf.h"

namespace lmdeploy {

/// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". A name that the architecture's table
/// does not list, and every name of an unknown architecture, stays as it is.
std::string hub_tensor_name(std::string_view architecture, std::string_view stored_name);

/// The config.json that belongs to the file. `content` is the whole model: the tensors of all parts of a
/// split file. An architecture without a table gets `architectures: ["gguf:NAME"]` and nothing else, so that
/// whoever looks the model up refuses it by that name. Throws Error naming `where` and the key for metadata
/// that cannot be said in the hub's words.
JsonObject hub_config(const GgufContent& content, std::string_view where);

}  // namespace lmdeploy
