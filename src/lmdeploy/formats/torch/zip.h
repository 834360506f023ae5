// Zip archives whose entries are stored as they are: what torch.save writes. Format: PKWARE APPNOTE 6.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lmdeploy {

struct ZipEntry {
  std::string_view name;
  std::span<const std::byte> bytes;  // as stored
  uint16_t method = 0;               // 0: stored; others are compressed
};

/// The entries of an archive, zip64 or not; they point into `bytes`. Checksums are not compared. Throws
/// Error(kInvalidData), or kUnsupported for encrypted entries and archives in several files; messages begin
/// with `where`.
std::vector<ZipEntry> parse_zip(std::span<const std::byte> bytes, std::string_view where);

}  // namespace lmdeploy
