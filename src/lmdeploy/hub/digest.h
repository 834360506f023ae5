// The hash under which a hub knows a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lmdeploy {

/// SHA-256 for large files (64 digits), the SHA-1 that git gives a blob for small ones (40 digits).
enum class DigestKind { kNone, kSha256, kGitBlob };
/// By the number of hexadecimal digits; kNone for anything else.
DigestKind digest_kind(std::string_view etag);

class Digest {
 public:
  /// git hashes a file's size first.
  Digest(DigestKind kind, int64_t file_size);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  /// Begins anew.
  void reset();
  void update(std::string_view bytes);
  /// Lower-case hexadecimal; "" for kNone. The digest is used up until reset().
  std::string finish();

 private:
  DigestKind kind_;
  int64_t file_size_;
  void* context_ = nullptr;  // EVP_MD_CTX
};

}  // namespace lmdeploy
