#include "lmdeploy/serve/embedded_file.h"

#include <boost/beast/zlib/inflate_stream.hpp>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr size_t kTrailer = 8;  // checksum and size

/// Of the header: ten bytes, and a name when the file was made with one (RFC 1952, 2.3).
size_t header_size(std::string_view gzip) {
  constexpr char kHasName = 8;
  LMD_CHECK(gzip.size() > 10 + kTrailer && gzip.starts_with("\x1f\x8b\x08"), gzip.size());
  LMD_CHECK((gzip[3] & ~kHasName) == 0, static_cast<int>(gzip[3]));
  return gzip[3] == 0 ? 10 : gzip.find('\0', 10) + 1;
}

}  // namespace

std::string unpacked(const EmbeddedFile& file) {
  std::string text(file.size, '\0');
  const size_t header = header_size(file.gzip);
  boost::beast::zlib::z_params buffers;
  buffers.next_in = file.gzip.data() + header;
  buffers.avail_in = file.gzip.size() - header - kTrailer;
  buffers.next_out = text.data();
  buffers.avail_out = text.size();
  boost::beast::error_code error;
  boost::beast::zlib::inflate_stream stream;
  stream.write(buffers, boost::beast::zlib::Flush::finish, error);
  LMD_CHECK(error == boost::beast::zlib::error::end_of_stream && buffers.avail_out == 0, file.name,
            error.message());
  return text;
}

}  // namespace lmdeploy
