// Where a rendering is cut so that the model continues the last message: against transformers, on real
// templates.
#include <gtest/gtest.h>

#include <optional>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/golden_cases.h"
#include "lmdeploy/jinja/template.h"
#include "lmdeploy/text/chat/chat_template_jinja.h"

namespace lmdeploy {
namespace {

TEST(ContinueGolden, RealTemplates) {
  const std::filesystem::path folder = LMDEPLOY_SOURCE_DIR "/../shared/data/chat_templates";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  size_t num_cut = 0, num_without_place = 0;
  jinja::for_each_golden_case(folder, [&](const std::string& source, const jinja::GoldenCase& golden) {
    const bool without_place = golden.error_type == "ValueError";
    if (golden.before_cut.empty() && !without_place) return;
    const std::string whole =
        without_place ? jinja::Template(source).render(golden.variables) : golden.before_cut;
    const std::optional<std::string> got = cut_after_content(whole, golden.final_text);
    EXPECT_EQ(got.has_value(), !without_place) << golden.file << " " << golden.name;
    EXPECT_EQ(got.value_or(""), golden.expected) << golden.file << " " << golden.name;
    ++(without_place ? num_without_place : num_cut);
  });
  EXPECT_GT(num_cut, 100u);
  EXPECT_GT(num_without_place, 0u);
}

}  // namespace
}  // namespace lmdeploy
