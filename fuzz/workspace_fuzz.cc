// config.ini and config.yaml of converted workspaces. The first byte says which: 'i' or 'y'.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/formats/turbomind/workspace.h"

namespace {

// Whatever is accepted describes a model of sane size.
void check(const lmdeploy::WorkspaceConfig& config) {
  if (config.own_layout) return;
  const lmdeploy::WorkspaceModel& m = config.model;
  const bool sane = m.heads > 0 && m.kv_heads > 0 && m.heads % m.kv_heads == 0 && m.head_dim > 0 &&
                    m.hidden > 0 && m.vocab > 0 && m.embedding_rows >= m.vocab && !m.inter.empty() &&
                    m.experts.size() == m.inter.size() && m.hidden <= 1 << 24 && m.head_dim <= 1 << 16;
  if (!sane || !config.hub.contains("hidden_size")) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lmdeploy::set_log_level(lmdeploy::LogLevel::kError);  // settings without effect are warned of
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    check(data[0] == 'y' ? lmdeploy::parse_workspace_yaml(text, "input")
                         : lmdeploy::parse_workspace_ini(text, "input"));
  } catch (const lmdeploy::Error&) {
  }
  return 0;
}
