// Python's two ways to format: "..." % values and "...".format(values).
#pragma once

#include <string_view>

#include "lmdeploy/jinja/value.h"

namespace lmdeploy::jinja {

/// format % values; `values`: a tuple, a dict for %(name)s, or the only value.
Value format_percent(const Value& format, const Value& values);
/// format.format(*positional, **named).
Value format_braces(Interpreter& interpreter, const Value& format, const Arguments& arguments);
/// What "{:spec}" makes of one value.
std::string format_value(const Value& value, std::string_view spec);

}  // namespace lmdeploy::jinja
