// Files that travel inside the program; cmake/embed_files.py makes the table.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lmdeploy {

struct EmbeddedFile {
  std::string_view name;  // without folders
  size_t size;            // of the text, in bytes
  std::string_view hash;  // of the text, hexadecimal
  std::string_view gzip;  // the text, packed (RFC 1952)
};

std::span<const EmbeddedFile> embedded_files();

/// The text of a file.
std::string unpacked(const EmbeddedFile& file);

}  // namespace lmdeploy
