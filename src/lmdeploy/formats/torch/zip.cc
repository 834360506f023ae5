#include "lmdeploy/formats/torch/zip.h"

#include <algorithm>
#include <optional>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/byte_reader.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50, kEntrySignature = 0x02014b50, kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50, kLocator64Signature = 0x07064b50;
constexpr size_t kEndBytes = 22, kLocator64Bytes = 20;
constexpr size_t kMaxComment = 0xffff;
constexpr uint32_t kIn64 = 0xffffffff;  // the number is in a zip64 field
constexpr uint16_t kCountIn64 = 0xffff, kExtra64 = 1, kEncrypted = 1;

struct Directory {
  uint64_t offset = 0, size = 0, count = 0;
};

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  std::vector<ZipEntry> read() const {
    const Directory directory = find_directory();
    ByteReader reader(slice(directory.offset, directory.size, "the directory"), where_);
    std::vector<ZipEntry> entries;
    for (uint64_t i = 0; i < directory.count; ++i) entries.push_back(read_entry(reader));
    check_names(entries);
    return entries;
  }

 private:
  [[noreturn]] void fail(const std::string& what, ErrorCode code = ErrorCode::kInvalidData) const {
    throw Error(code, cat(where_, ": zip archive: ", what));
  }

  std::span<const std::byte> slice(uint64_t offset, uint64_t size, std::string_view what) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      fail(cat(what, " is said to be ", size, " bytes at ", offset, ", the file has ", bytes_.size()));
    return bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
  }
  ByteReader reader_at(uint64_t offset, std::string_view what) const {
    return {slice(offset, bytes_.size() - std::min<uint64_t>(offset, bytes_.size()), what), where_};
  }

  // From the end: a comment may follow the record.
  size_t find_end() const {
    for (size_t back = kEndBytes; back <= std::min(bytes_.size(), kEndBytes + kMaxComment); ++back) {
      ByteReader reader = reader_at(bytes_.size() - back, "the end record");
      if (reader.read<uint32_t>("a signature") == kEndSignature) return bytes_.size() - back;
    }
    fail("no end record; the file may be cut off");
  }

  Directory find_directory() const {
    const size_t end = find_end();
    ByteReader reader = reader_at(end + 4, "the end record");
    const auto disk = reader.read<uint16_t>("a disk number");
    reader.take(4, "disk numbers");
    Directory directory;
    directory.count = reader.read<uint16_t>("a count");
    directory.size = reader.read<uint32_t>("a size");
    directory.offset = reader.read<uint32_t>("an offset");
    if (disk != 0 && disk != kCountIn64) fail("it is in several files", ErrorCode::kUnsupported);
    const bool in_64 = directory.count == kCountIn64 || directory.size == kIn64 || directory.offset == kIn64;
    return in_64 ? find_directory_64(end) : directory;
  }

  Directory find_directory_64(size_t end) const {
    if (end < kLocator64Bytes) fail("no room for the zip64 locator");
    ByteReader locator = reader_at(end - kLocator64Bytes, "the zip64 locator");
    if (locator.read<uint32_t>("a signature") != kLocator64Signature) fail("no zip64 locator");
    locator.take(4, "a disk number");
    ByteReader reader = reader_at(locator.read<uint64_t>("an offset"), "the zip64 end record");
    if (reader.read<uint32_t>("a signature") != kEnd64Signature) fail("no zip64 end record");
    reader.take(28, "the zip64 end record");
    Directory directory;
    directory.count = reader.read<uint64_t>("a count");
    directory.size = reader.read<uint64_t>("a size");
    directory.offset = reader.read<uint64_t>("an offset");
    return directory;
  }

  ZipEntry read_entry(ByteReader& reader) const {
    if (reader.read<uint32_t>("a directory entry") != kEntrySignature)
      fail("no directory entry where one should be");
    reader.take(4, "versions");
    const auto flags = reader.read<uint16_t>("flags");
    ZipEntry entry;
    entry.method = reader.read<uint16_t>("a method");
    reader.take(8, "times and checksum");
    uint64_t stored = reader.read<uint32_t>("a size"), size = reader.read<uint32_t>("a size");
    const auto name_size = reader.read<uint16_t>("a length"), extra_size = reader.read<uint16_t>("a length"),
               comment_size = reader.read<uint16_t>("a length");
    reader.take(8, "attributes");
    uint64_t offset = reader.read<uint32_t>("an offset");
    const auto name = reader.take(name_size, "a name");
    entry.name = {reinterpret_cast<const char*>(name.data()), name.size()};
    read_extra_64(reader.take(extra_size, "extra fields"), size, stored, offset);
    reader.take(comment_size, "a comment");
    if ((flags & kEncrypted) != 0)
      fail(cat("entry ", quote(entry.name), " is encrypted"), ErrorCode::kUnsupported);
    if (entry.method == 0 && stored != size)
      fail(cat("entry ", quote(entry.name), " is stored in ", stored, " bytes but has ", size));
    entry.bytes = content(offset, stored, entry.name);
    return entry;
  }

  // The numbers that do not fit 32 bits, in this order, each only where it is needed.
  void read_extra_64(std::span<const std::byte> extra, uint64_t& size, uint64_t& stored,
                     uint64_t& offset) const {
    ByteReader reader(extra, where_);
    while (reader.remaining() >= 4) {
      const auto id = reader.read<uint16_t>("an id"), field_size = reader.read<uint16_t>("a length");
      ByteReader field(reader.take(field_size, "an extra field"), where_);
      if (id != kExtra64) continue;
      for (uint64_t* number : {&size, &stored, &offset})
        if (*number == kIn64) *number = field.read<uint64_t>("a zip64 number");
      return;
    }
  }

  // Behind the local header, whose extra fields may be longer than those of the directory.
  std::span<const std::byte> content(uint64_t offset, uint64_t size, std::string_view name) const {
    ByteReader reader = reader_at(offset, "a local header");
    if (reader.read<uint32_t>("a local header") != kLocalSignature)
      fail(cat("entry ", quote(name), " has no local header at ", offset));
    reader.take(22, "a local header");
    const auto name_size = reader.read<uint16_t>("a length"), extra_size = reader.read<uint16_t>("a length");
    reader.take(size_t{name_size} + extra_size, "a local header");
    return reader.take(size, cat("entry ", quote(name)));
  }

  void check_names(const std::vector<ZipEntry>& entries) const {
    std::vector<std::string_view> names;
    for (const ZipEntry& entry : entries) names.push_back(entry.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) fail(cat("entry ", quote(*twice), " is there twice"));
  }

  std::span<const std::byte> bytes_;
  std::string_view where_;
};

}  // namespace

std::vector<ZipEntry> parse_zip(std::span<const std::byte> bytes, std::string_view where) {
  return ZipReader(bytes, where).read();
}

}  // namespace lmdeploy
