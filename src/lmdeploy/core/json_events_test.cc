#include "lmdeploy/core/json_events.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

std::string values_of(std::string_view text, size_t piece) {
  JsonEvents events("stream");
  std::string found;
  for (size_t at = 0; at < text.size(); at += piece)
    events.push(text.substr(at, piece), [&](const Json& value) { found += to_json_text(value) + ";"; });
  return found + (events.done() ? "done" : "");
}

TEST(JsonEventsTest, ReadsEventsAndLinesHoweverTheyAreCut) {
  const std::string events =
      ": hello\nevent: delta\r\ndata: {\"a\": 1}\r\n\r\ndata:[2]\n\nid: 3\ndata: [DONE]\n\ndata: 4\n";
  for (size_t piece = 1; piece <= events.size(); ++piece)
    EXPECT_EQ(values_of(events, piece), "{\"a\":1};[2];done") << "pieces of " << piece;
  EXPECT_EQ(values_of("{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"unfinished", 7),
            "{\"text\":\"a\"};{\"text\":\"b\"};");
}

TEST(JsonEventsTest, RefusesWhatIsNoJson) {
  EXPECT_THROW(values_of("data: {\"a\":\n\n", 3), Error);
  EXPECT_THROW(values_of("<html>\n", 100), Error);
  JsonEvents events("stream");
  const std::string part(1 << 20, 'a');
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; ++i) events.push(part, [](const Json&) {});
      },
      Error);
}

}  // namespace
}  // namespace lmdeploy
