#include "lmdeploy/pipeline/text_stream.h"

#include <gtest/gtest.h>

#include "lmdeploy/pipeline/scripted_tokenizer.h"
#include "lmdeploy/pipeline/streams.h"

namespace lmdeploy {
namespace {

using Piece = ScriptedTokenizer::Piece;

RequestOutput output_of(std::vector<int> ids, FinishReason finish = FinishReason::kNone) {
  RequestOutput output;
  output.token_ids = std::move(ids);
  output.finish = finish;
  return output;
}

/// Feeds pieces[0], pieces[1], ... one token at a time; the last output says `finish`.
struct Answer {
  explicit Answer(std::vector<Piece> pieces, TextStreamOptions options = {},
                  FinishReason finish = FinishReason::kLength) {
    const int count = static_cast<int>(pieces.size());
    TextStream stream(std::make_shared<ScriptedTokenizer>(std::move(pieces)), std::move(options));
    for (int id = 0; id < count && !stream.finished(); ++id) {
      const Response piece = stream.push(output_of({id}, id + 1 == count ? finish : FinishReason::kNone));
      deltas.push_back(piece.text);
      append_piece(whole, piece);
    }
  }
  std::vector<std::string> deltas;
  Response whole;
};

TEST(TextStream, F01_NoHalfCharacters) {
  const Answer run({{"\xE9\xB2"}, {"\xB8"}, {" ok"}});
  EXPECT_EQ(run.deltas, (std::vector<std::string>{"", "鲸", " ok"}));
}

TEST(TextStream, F02_UnfinishedCharacterAtTheEnd) {
  const Answer run({{"A"}, {"\xF0\x9F"}});
  EXPECT_EQ(run.whole.text, "A\xEF\xBF\xBD");
  EXPECT_EQ(run.whole.finish_reason, FinishReason::kLength);
  EXPECT_EQ(run.whole.generate_token_len, 2);
}

TEST(TextStream, F06_ControlTokensStayOut) {
  const std::vector<Piece> pieces = {{"<s>", true}, {"Hi"}, {"<custom>"}, {" there"}, {"</s>", true}};
  EXPECT_EQ(Answer(pieces).whole.text, "Hi<custom> there");
  EXPECT_EQ(Answer(pieces, {.skip_special_tokens = false}).whole.text, "<s>Hi<custom> there</s>");
}

TEST(TextStream, F12_StopWordAcrossTokens) {
  const Answer run({{"A."}, {"\n"}, {"\nB"}, {"more"}}, {.stop_words = {"\n\n"}});
  EXPECT_EQ(run.whole.text, "A.");
  EXPECT_EQ(run.whole.finish_reason, FinishReason::kStop);
  EXPECT_EQ(run.whole.token_ids, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(run.whole.generate_token_len, 3);
}

TEST(TextStream, F13_HoldsBackThePossibleBeginning) {
  const Answer stopped({{"ok "}, {"PQ"}, {"RS"}, {"TU"}}, {.stop_words = {"PQRSTU"}});
  EXPECT_EQ(stopped.deltas, (std::vector<std::string>{"ok ", "", "", ""}));
  EXPECT_EQ(stopped.whole.finish_reason, FinishReason::kStop);
  const Answer released({{"ok "}, {"PQ"}, {"RX"}}, {.stop_words = {"PQRSTU"}});
  EXPECT_EQ(released.whole.text, "ok PQRX");
  EXPECT_EQ(released.whole.finish_reason, FinishReason::kLength);
  const Answer cut_short({{"ok "}, {"PQ"}}, {.stop_words = {"PQRSTU"}});
  EXPECT_EQ(cut_short.whole.text, "ok PQ");
}

TEST(TextStream, F14_StopWordInsideAToken) {
  const Answer inside({{"abc"}}, {.stop_words = {"b"}});
  EXPECT_EQ(inside.whole.text, "a");
  EXPECT_EQ(inside.whole.finish_reason, FinishReason::kStop);
  const Answer earliest({{"hel"}, {"lo wor"}, {"ld"}}, {.stop_words = {"lo w", "hello"}});
  EXPECT_EQ(earliest.whole.text, "");
  EXPECT_EQ(earliest.whole.finish_reason, FinishReason::kStop);
}

TEST(TextStream, F15_StopIdIsNotText) {
  // The engine ends at the control id and leaves it out; what came before is the answer.
  const Answer run({{"Hi"}, {"!"}}, {.stop_ids = {7}}, FinishReason::kStop);
  EXPECT_EQ(run.whole.text, "Hi!");
  EXPECT_EQ(run.whole.finish_reason, FinishReason::kStop);
}

TEST(TextStream, IncludedStopWordAndStopId) {
  const Answer word({{"A"}, {"STOPx"}}, {.stop_words = {"STOP"}, .include_stop = true});
  EXPECT_EQ(word.whole.text, "ASTOP");
  const Answer id({{"A"}, {"PQ"}, {"<end>", true}},
                  {.stop_words = {"PQR"}, .stop_ids = {2}, .include_stop = true}, FinishReason::kStop);
  EXPECT_EQ(id.whole.text, "APQ<end>");
  EXPECT_EQ(id.whole.token_ids, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(id.whole.generate_token_len, 3);
}

TEST(TextStream, StopWordsWaitForMinNewTokens) {
  const Answer run({{"a"}, {"."}, {"b"}, {"."}, {"c"}}, {.stop_words = {"."}, .min_new_tokens = 2});
  EXPECT_EQ(run.whole.text, "a.b");
}

TEST(TextStream, TokensPastTheStopWordAreDropped) {
  TextStream stream(std::make_shared<ScriptedTokenizer>(std::vector<Piece>{{"a"}, {"."}, {"b"}}),
                    {.stop_words = {"."}, .vocab_size = 3, .hidden_size = 2});
  RequestOutput merged = output_of({0, 1, 2, 2}, FinishReason::kLength);
  merged.logprobs.resize(4, {.chosen = -1, .top = {{0, -0.5f}}});
  merged.logits.assign(12, 1.0f);
  merged.hidden_states.assign(8, 1.0f);
  const Response piece = stream.push(std::move(merged));
  EXPECT_TRUE(stream.stopped_by_text());
  EXPECT_EQ(piece.token_ids, (std::vector<int>{0, 1}));
  EXPECT_EQ(piece.logits.size(), 6u);
  EXPECT_EQ(piece.last_hidden_state.size(), 4u);
  ASSERT_EQ(piece.logprobs.size(), 2u);
  EXPECT_EQ(piece.logprobs[0], (std::vector<std::pair<int, float>>{{0, -0.5f}}));
  EXPECT_EQ(piece.logprobs[1], (std::vector<std::pair<int, float>>{{0, -0.5f}, {1, -1.0f}}));
}

TEST(TextStream, WithoutTokenizerIdsOnly) {
  TextStream stream(nullptr, {});
  const Response piece = stream.push(output_of({4, 5}, FinishReason::kLength));
  EXPECT_EQ(piece.text, "");
  EXPECT_EQ(piece.token_ids, (std::vector<int>{4, 5}));
  EXPECT_TRUE(stream.finished());
}

TEST(TextStream, ErrorsArePassedOn) {
  TextStream stream(nullptr, {});
  RequestOutput failed = output_of({}, FinishReason::kError);
  failed.error_code = ErrorCode::kBusy;
  failed.error_message = "session 3 is busy";
  const Response piece = stream.push(std::move(failed));
  EXPECT_EQ(piece.error_code, ErrorCode::kBusy);
  EXPECT_EQ(piece.error_message, "session 3 is busy");
}

}  // namespace
}  // namespace lmdeploy
