// Small text files of a cache.
#pragma once

#include <string>
#include <string_view>

namespace lmdeploy {

/// Throws Error(kIo).
void make_folders(const std::string& path);
/// Replaces the file in one step; makes its folders. Throws Error(kIo).
void replace_file(const std::string& path, std::string_view text);

}  // namespace lmdeploy
