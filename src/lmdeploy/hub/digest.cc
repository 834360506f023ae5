#include "lmdeploy/hub/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <new>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

EVP_MD_CTX* context_of(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

DigestKind digest_kind(std::string_view etag) {
  const bool is_hex = std::all_of(etag.begin(), etag.end(),
                                  [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (is_hex && etag.size() == 64) return DigestKind::kSha256;
  if (is_hex && etag.size() == 40) return DigestKind::kGitBlob;
  return DigestKind::kNone;
}

Digest::Digest(DigestKind kind, int64_t file_size) : kind_(kind), file_size_(file_size) {
  if (kind_ == DigestKind::kNone) return;
  context_ = EVP_MD_CTX_new();
  if (context_ == nullptr) throw std::bad_alloc();
  reset();
}

Digest::~Digest() { EVP_MD_CTX_free(context_of(context_)); }

void Digest::reset() {
  if (kind_ == DigestKind::kNone) return;
  const EVP_MD* algorithm = kind_ == DigestKind::kSha256 ? EVP_sha256() : EVP_sha1();
  if (EVP_DigestInit_ex(context_of(context_), algorithm, nullptr) != 1)
    throw Error(ErrorCode::kUnsupported, "the system's OpenSSL does not offer SHA-1 and SHA-256");
  if (kind_ == DigestKind::kGitBlob) {
    update(cat("blob ", file_size_));
    update(std::string_view("\0", 1));
  }
}

void Digest::update(std::string_view bytes) {
  if (kind_ != DigestKind::kNone) EVP_DigestUpdate(context_of(context_), bytes.data(), bytes.size());
}

std::string Digest::finish() {
  if (kind_ == DigestKind::kNone) return "";
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
  unsigned size = 0;
  EVP_DigestFinal_ex(context_of(context_), bytes.data(), &size);
  std::string hex;
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (unsigned i = 0; i < size; ++i) {
    hex += kDigits[bytes[i] >> 4];
    hex += kDigits[bytes[i] & 15];
  }
  return hex;
}

}  // namespace lmdeploy
