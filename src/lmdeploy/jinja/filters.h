// What the files with filters and tests share.
#pragma once

#include <optional>
#include <span>

#include "lmdeploy/jinja/builtin.h"

namespace lmdeploy::jinja {

/// float(value); nothing where Python raises TypeError or ValueError.
std::optional<double> to_double(const Value& value);
/// int(text, base); nothing where Python raises ValueError.
std::optional<Int> parse_int(std::string_view text, Int base);
/// A generator, which can be iterated once. `over`: what it draws from.
Value make_generator(const Value& over, Iterator iterator);

std::span<const Builtin> sequence_filters();  // filters_sequence.cc

}  // namespace lmdeploy::jinja
