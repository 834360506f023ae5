#include "lmdeploy/core/json.h"

#include <algorithm>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/parse_options.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"

namespace lmdeploy {
namespace {

constexpr size_t kMaxDepth = 256;

std::string line_and_column(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return cat("line ", line, ", column ", before.size() - line_start + 1);
}

Json parse_into(const boost::json::storage_ptr& storage, std::string_view text, std::string_view where) {
  boost::json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::json::stream_parser parser({}, options);
  parser.reset(storage);
  boost::system::error_code error;
  const size_t parsed = parser.write_some(text.data(), text.size(), error);
  if (!error && parsed < text.size()) error = boost::json::error::extra_data;
  if (!error) parser.finish(error);
  if (error)
    throw Error(ErrorCode::kInvalidData,
                cat(where, ": not valid JSON at ", line_and_column(text, parsed), ": ", error.message()));
  return parser.release();
}

}  // namespace

Json parse_json(std::string_view text, std::string_view where) { return parse_into({}, text, where); }

Json read_json_file(const std::string& path) {
  return parse_into(boost::json::make_shared_resource<boost::json::monotonic_resource>(), read_file(path),
                    path);
}

std::string to_json_text(const Json& value) { return boost::json::serialize(value); }

std::string_view json_kind(const Json& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::bool_:
      return "a boolean";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      return "an integer";
    case boost::json::kind::double_:
      return "a number";
    case boost::json::kind::string:
      return "a string";
    case boost::json::kind::array:
      return "an array";
    case boost::json::kind::object:
      return "an object";
  }
  return "unknown";
}

}  // namespace lmdeploy
