// What config.ini and config.yaml have in common: how their keys are read.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/turbomind/workspace.h"

namespace lmdeploy {

/// Error(kInvalidData) unless the key is there.
void require_workspace_key(const ConfigReader& keys, std::string_view key);
/// An integer from `least` to `most`; the first form is for sizes, which must be there.
int64_t workspace_size(const ConfigReader& keys, std::string_view key, int64_t most = 1 << 24);
int64_t workspace_int(const ConfigReader& keys, std::string_view key, int64_t fallback, int64_t least,
                      int64_t most);
/// 0, 1, True or False.
bool workspace_flag(const ConfigReader& keys, std::string_view key, bool fallback);
/// A text; one that looks like a number or a boolean is a text too.
std::string workspace_text(const ConfigReader& keys, std::string_view key);
/// A finite number from `least` on; that must be there without a fallback.
double workspace_number(const ConfigReader& keys, std::string_view key, double least);
double workspace_number(const ConfigReader& keys, std::string_view key, double fallback, double least);

/// Takes over `names` that are there, as engine options of that name.
void copy_settings(const ConfigReader& keys, std::initializer_list<std::string_view> names,
                   JsonObject& settings);
/// Keys that bound work of the original engine which ours does not do: a value other than the usual ones is
/// said to have no effect.
void warn_unused_setting(const ConfigReader& keys, std::string_view key,
                         std::initializer_list<int64_t> usual);
/// The sizes and the rest of `hub` that all workspaces share.
void add_hub_sizes(const WorkspaceModel& model, JsonObject& hub);
/// Error(kInvalidData) unless heads, kv heads and inner sizes fit each other and the ranks.
void check_workspace_model(const WorkspaceModel& model, const std::string& where);

}  // namespace lmdeploy
