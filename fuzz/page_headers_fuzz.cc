// Accept-Encoding and If-None-Match as clients send them: no crash, and what is named alone is found in a
// list.
#include "lmdeploy/core/error.h"
#include "lmdeploy/serve/pages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdeploy;
  const std::string text(reinterpret_cast<const char*>(data), size);
  accepts_gzip(text);
  LMD_CHECK(accepts_gzip(text + ",gzip"), text);
  LMD_CHECK(!accepts_gzip(text + ",gzip;q=0"), text);
  const std::string tag = "W/\"0123456789abcdef\"";
  matches_etag(text, tag);
  LMD_CHECK(matches_etag(text + "," + tag, tag), text);
  return 0;
}
