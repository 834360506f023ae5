// What a hub answers: lists of files, headers, an index of shards. What is taken must be safe to use as a
// path.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/hub/file_choice.h"
#include "lmdeploy/hub/replies.h"

namespace {

using namespace lmdeploy;

template <typename Call>
void attempt(Call call) {
  try {
    call();
  } catch (const Error&) {
  }
}

void require_safe(const std::string& path) {
  const std::string inside = "/" + path + "/";
  if (path.empty() || path[0] == '/' || inside.find("/../") != std::string::npos ||
      path.find('\0') != std::string::npos)
    std::abort();
}

void choose(const std::vector<std::string>& files, std::string_view text) {
  small_files(files);
  attempt([&] {
    const Weights weights =
        weight_files(files, {"org", "name", ""}, [&](const auto&) { return std::string(text); });
    for (const std::string& file : weights.files) require_safe(file);
  });
}

/// "name: value" lines.
HttpReply headers_of(std::string_view text) {
  HttpReply reply;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t colon = line.find(": ");
    if (colon != std::string_view::npos)
      reply.headers[std::string(line.substr(0, colon))] = line.substr(colon + 2);
  }
  return reply;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] {
    const Listing listing = parse_listing(text, "input");
    for (const std::string& file : listing.files) require_safe(file);
    choose(listing.files, text);
  });
  attempt([&] {
    for (const RemoteFile& file : parse_modelscope_listing(text, "input")) require_safe(file.path);
  });
  attempt([&] {
    const RemoteFile file = parse_file_headers(headers_of(text), "file");
    require_safe(file.etag);
    if (file.etag.find('/') != std::string::npos || file.size < 0) std::abort();
  });
  choose({"model.safetensors.index.json", "a.safetensors"}, text);
  if (const auto id = parse_model_id(text); id && !id->file.empty()) require_safe(id->file);
  range_begin(text);
  resolve_url("https://hub.example/a", std::string(text));
  return 0;
}
