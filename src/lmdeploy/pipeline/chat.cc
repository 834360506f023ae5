// Conversations: the whole of it is rendered each turn, and only what the engine's session lacks is sent.
#include <algorithm>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/pipeline/pipeline_impl.h"

namespace lmdeploy {
namespace {

JsonObject message(std::string_view role, std::string_view content) {
  return JsonObject({{"role", role}, {"content", content}});
}

Json conversation(const ChatSession& session, const std::string& prompt) {
  JsonArray messages;
  if (!session.system.empty()) messages.push_back(message("system", session.system));
  for (const auto& [user, assistant] : session.history) {
    messages.push_back(message("user", user));
    messages.push_back(message("assistant", assistant));
  }
  messages.push_back(message("user", prompt));
  return messages;
}

std::vector<int> encode_turn(const PromptEncoder& encoder, const ChatSession& session,
                             const std::string& prompt, const RunOptions& options) {
  if (options.do_preprocess) return encoder.encode(conversation(session, prompt), options);
  if (session.token_ids.empty()) return encoder.encode(prompt, options);
  std::vector<int> ids = session.token_ids;
  const std::vector<int> added = encoder.encode_continuation(prompt);
  ids.insert(ids.end(), added.begin(), added.end());
  return ids;
}

/// Leading ids that the session holds already; at least the last id is always sent.
int64_t held_prefix(const ChatSession& session, const std::vector<int>& ids) {
  const auto limit =
      ids.begin() + static_cast<std::ptrdiff_t>(std::min(session.token_ids.size(), ids.size() - 1));
  return std::mismatch(ids.begin(), limit, session.token_ids.begin()).first - ids.begin();
}

void continue_session(Request& request, const ChatSession& session, int64_t held) {
  request.session_id = session.session_id;
  request.sequence_end = false;
  if (held == 0) return;
  // A rollback: the template may write old turns otherwise than they were generated (trimmed, without
  // thoughts).
  request.sequence_start = false;
  request.step = held;
  request.input_ids.erase(request.input_ids.begin(),
                          request.input_ids.begin() + static_cast<std::ptrdiff_t>(held));
}

/// One turn in flight.
struct Turn {
  ChatSession* session;
  std::weak_ptr<Runtime> runtime;
  std::string prompt;
  std::vector<int> token_ids;  // of the whole conversation up to the answer

  void end(Response answer, int64_t session_tokens) {
    if (answer.error_code == ErrorCode::kBusy) return;  // the session is that of the turn which runs
    if (answer.finish_reason == FinishReason::kError) return forget();
    token_ids.insert(token_ids.end(), answer.token_ids.begin(), answer.token_ids.end());
    token_ids.resize(std::min(token_ids.size(), static_cast<size_t>(session_tokens)));
    session->token_ids = std::move(token_ids);
    session->step = static_cast<int64_t>(session->token_ids.size());
    session->history.emplace_back(std::move(prompt), std::move(answer.text));
  }
  /// What the engine kept is uncertain: the next turn sends everything.
  void forget() {
    session->token_ids.clear();
    session->step = 0;
    if (const std::shared_ptr<Runtime> alive = runtime.lock())
      alive->engine->end_session(session->session_id);
  }
};

}  // namespace

ChatSession Pipeline::new_session() {
  impl_->runtime();
  ChatSession session;
  session.session_id = impl_->next_session_id();
  return session;
}

std::unique_ptr<ResponseStream> Pipeline::chat(ChatSession& session, const std::string& prompt,
                                               const GenerationConfig& gen_config,
                                               const RunOptions& options) {
  const std::shared_ptr<Runtime> runtime = impl_->runtime();
  require_one_choice(gen_config);
  gen_config.validate();
  if (session.session_id == 0) session.session_id = impl_->next_session_id();
  std::vector<int> ids = encode_turn(impl_->encoder(), session, prompt, options);
  if (!impl_->builder().fits(ids.size(), gen_config)) return impl_->reject(ids.size());

  const int64_t held = held_prefix(session, ids);
  PreparedRequest prepared = impl_->builder().build(ids, gen_config);
  continue_session(prepared.request, session, held);
  Turn turn{&session, runtime, prompt, std::move(ids)};
  return std::make_unique<ChatStream>(
      impl_->start(*runtime, std::move(prepared)),
      [turn = std::move(turn)](Response answer, int64_t session_tokens) mutable {
        turn.end(std::move(answer), session_tokens);
      });
}

PromptPreview Pipeline::preview(const ChatSession& session, const std::string& prompt,
                                const RunOptions& options) const {
  if (options.do_preprocess) return impl_->encoder().preview(conversation(session, prompt), options);
  return impl_->encoder().preview(encode_turn(impl_->encoder(), session, prompt, options), options);
}

void Pipeline::end_session(const ChatSession& session) {
  try {
    impl_->runtime()->engine->end_session(session.session_id);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kClosed) throw;
  }
}

}  // namespace lmdeploy
