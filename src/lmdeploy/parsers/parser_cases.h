// Tables of outputs and what is to be read from them. Every case is parsed whole, cut in two at every byte,
// byte by byte and in random pieces, and always gives the same (parser_cases_test.cc).
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/parsers/output_parser.h"

namespace lmdeploy {

struct ParserCase {
  std::string name;
  std::string reasoning, tool_calls;  // parsers
  std::string text;
  ParsedOutput want;  // ids: as written in the text, or id0, id1, ...
  std::optional<bool> opens_thought = std::nullopt;
  bool enable_thinking = true;
};

/// f(text: string, count: integer, ratio: number, flag: boolean, list: array, maybe: string or null,
/// any: integer or null), and g without a schema.
const Json& case_tools();
/// Ids are id0, id1, ...
OutputParserOptions case_options(const ParserCase& c);
std::string show(const ParsedOutput& output);
/// What comes out, joined as a client joins it, when the text is cut at `cuts` (ascending).
ParsedOutput parse_cut(const ParserCase& c, const std::vector<size_t>& cuts);
std::vector<size_t> random_cuts(size_t size, uint64_t seed);

/// INSTANTIATE_TEST_SUITE_P(What, ParserCases, ::testing::ValuesIn(table), name_of_case) adds a table.
class ParserCases : public ::testing::TestWithParam<ParserCase> {};
inline std::string name_of_case(const ::testing::TestParamInfo<ParserCase>& info) { return info.param.name; }

}  // namespace lmdeploy
