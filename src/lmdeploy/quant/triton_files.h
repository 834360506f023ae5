// What a workspace has besides weights and tokenizer: the model repository of a Triton server.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lmdeploy {

/// service_docker_up.sh, the three models of the pipeline and model_repository/, under `root`.
void write_triton_files(const std::string& root, const std::string& template_name, int64_t tp);

/// tokenizer.py of the tokenizer folder: what the models of the repository encode and decode with.
std::string_view tokenizer_script();

}  // namespace lmdeploy
