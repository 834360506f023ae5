// JSON by Boost.JSON, with our limits and our error messages.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

namespace lmdeploy {

/// Objects keep the order of their keys; integers stay integers (int64 or uint64), 1.0 stays a double.
using Json = boost::json::value;
using JsonObject = boost::json::object;
using JsonArray = boost::json::array;

/// Parses one JSON text. `where` (a path, "request body") begins the message of the Error(kInvalidData)
/// thrown for a syntax error, invalid UTF-8 or nesting deeper than 256; the message gives line and column.
Json parse_json(std::string_view text, std::string_view where);
/// read_file() + parse_json().
Json read_json_file(const std::string& path);
/// Compact text, UTF-8 unescaped.
std::string to_json_text(const Json& value);
/// "null", "a boolean", "an integer", "a number", "a string", "an array", "an object": for error messages.
std::string_view json_kind(const Json& value);

}  // namespace lmdeploy
