// Models that are known and do not run here: what they are, and what to use instead.
#pragma once

#include <string>
#include <string_view>

namespace lmdeploy {

class ConfigReader;

/// "it reads pictures besides text, which is not supported: use Qwen2.5-7B-Instruct". Goes by the
/// architecture's name, then by what the config has; "" when neither says anything.
std::string why_not(std::string_view architecture, const ConfigReader& cfg);

/// For families whose models with pictures have the same class: `key` is in the configs of those only.
void refuse_pictures(const ConfigReader& cfg, std::string_view key);

}  // namespace lmdeploy
