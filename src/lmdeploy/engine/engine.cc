// The engine thread around EngineCore, and the handles of its requests.
#include "lmdeploy/engine/engine.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "lmdeploy/core/log.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/engine/engine_core.h"
#include "lmdeploy/engine/inbox.h"

namespace lmdeploy {
namespace {

/// May outlive the engine. Cancelling needs no memory: a handle is dropped when there is none left, too.
class Handle final : public RequestHandle {
 public:
  Handle(std::shared_ptr<Channel> channel, std::shared_ptr<Inbox> inbox)
      : channel_(std::move(channel)), inbox_(std::move(inbox)) {}
  ~Handle() override {
    cancel();
    channel_->close();
  }
  std::optional<RequestOutput> next(std::chrono::milliseconds timeout) override {
    return channel_->next(timeout);
  }
  void cancel() override {
    if (!channel_->finished()) inbox_->push(cancel_);
  }
  /// Where the inbox writes the request's id.
  uint64_t& id() { return std::get<CancelCommand>(cancel_.front()).id; }
  void set_notify(std::function<void()> notify) override { channel_->set_notify(std::move(notify)); }

 private:
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Inbox> inbox_;
  Commands cancel_{CancelCommand{}};  // until the inbox has it
};

thread_local const void* engine_of_thread = nullptr;

int64_t max_unfinished(const EngineConfig& config) {
  return config.max_queued_requests == 0 ? 0 : config.max_batch_size + config.max_queued_requests;
}

[[noreturn]] void refuse_closed() { throw Error(ErrorCode::kClosed, "request: the engine has been closed"); }

void check_scored(const Request& request) {
  if (request.max_new_tokens == 0 && !request.score_prompt && request.num_prompt_logprobs < 0) return;
  throw Error(ErrorCode::kUnsupported,
              "request: the model gives scores, no text: max_new_tokens must be 0, and tokens have no "
              "probabilities");
}

RequestOutput refusal(const Request& request, const Error& error) {
  RequestOutput output;
  output.prompt_tokens = static_cast<int64_t>(request.input_ids.size());
  output.finish = FinishReason::kError;
  output.error_code = error.code();
  output.error_message = error.what();
  return output;
}

}  // namespace

class Engine::Impl {
 public:
  Impl(Model& model, const Kernels& kernels, const EngineConfig& config, Model* draft_model)
      : config_(resolve_config(config, model, model.cache_memory(kernels), draft_model)),
        vocab_size_(model.spec().vocab_size),
        gives_score_(model.spec().gives_score),
        core_(model, kernels, config_, draft_model),
        inbox_(std::make_shared<Inbox>(max_unfinished(config_))),
        stats_(core_.stats()),
        thread_(start_thread([this] { run(); })) {}

  ~Impl() { close(); }

  std::unique_ptr<RequestHandle> submit(Request request) {
    refuse_own_thread();
    if (inbox_->closed()) refuse_closed();
    auto channel = std::make_shared<Channel>();
    auto handle = std::make_unique<Handle>(channel, inbox_);
    try {
      check_request(request, vocab_size_);
      if (gives_score_) check_scored(request);
      if (request.sequence_start) check_length(request, 0, config_.session_len);
    } catch (const Error& error) {
      ++num_refused_;
      channel->push(refusal(request, error));
      return handle;
    }
    Commands command;
    command.emplace_back(SubmitCommand{.request = std::move(request),
                                       .channel = std::move(channel),
                                       .enqueued = std::chrono::steady_clock::now()});
    const Inbox::Submitted submitted = inbox_->submit(command, handle->id());
    if (submitted == Inbox::Submitted::kClosed) refuse_closed();
    if (submitted == Inbox::Submitted::kFull)
      throw Error(ErrorCode::kResourceExhausted,
                  cat("request: ", max_unfinished(config_), " requests run or wait already (max_batch_size ",
                      config_.max_batch_size, ", max_queued_requests ", config_.max_queued_requests,
                      "): try again later"));
    return handle;
  }

  void end_session(uint64_t session_id) {
    Commands command{EndSessionCommand{session_id}};
    inbox_->push(command);
  }

  EngineStats stats() const {
    const std::lock_guard lock(stats_mutex_);
    EngineStats stats = stats_;
    stats.failed += num_refused_;
    return stats;
  }

  const EngineConfig& config() const { return config_; }
  bool closed() const { return inbox_->closed(); }

  bool on_own_thread() const { return engine_of_thread == this; }

  void close() {
    refuse_own_thread();
    inbox_->close();
    const std::lock_guard lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  void refuse_own_thread() const {
    if (on_own_thread())
      throw Error(
          ErrorCode::kInvalidArgument,
          "a logits processor cannot use or close the engine that it runs in: it would wait for itself");
  }

  void run() {
    pthread_setname_np(pthread_self(), "lmd-engine");
    engine_of_thread = this;
    Commands commands = inbox_->drain(/*busy=*/false);
    while (!inbox_->closed()) {
      bool published = false;
      guarded(commands, [&] { published = core_.step(commands, [&] { publish(); }); });
      // While a device computes, what the step before has given goes out: the next step does so for this one.
      if (!published || !core_.has_work()) publish();
      commands = inbox_->drain(core_.has_work());
    }
    commands.splice(commands.end(), inbox_->drain(/*busy=*/true));
    guarded(commands, [&] { core_.abort_all(commands); });
    publish();
  }

  /// What a step cannot attribute to a request (memory ran out between requests, say) ends all of them, not
  /// the engine.
  template <typename Action>
  void guarded(Commands& commands, Action&& action) {
    try {
      action();
    } catch (const std::exception& error) {
      core_.fail_all(error, commands);
      log_failure(error);
    }
  }

  static void log_failure(const std::exception& step_error) {
    try {
      LMD_LOG(kError, "the engine's step failed; all requests end: ", describe(step_error));
    } catch (const std::exception&) {  // no memory for the message either
    }
  }

  /// Figures first, so that a caller who has seen a request end also sees its blocks and its place free.
  void publish() {
    {
      const std::lock_guard lock(stats_mutex_);
      stats_ = core_.stats();
    }
    inbox_->ended(core_.take_num_ended());
    core_.deliver();
  }

  const EngineConfig config_;
  const int64_t vocab_size_;
  const bool gives_score_;
  EngineCore core_;  // the thread's own
  std::shared_ptr<Inbox> inbox_;
  std::atomic<int64_t> num_refused_{0};
  mutable std::mutex stats_mutex_;
  EngineStats stats_;
  std::mutex join_mutex_;
  std::thread thread_;  // last: runs on all of the above
};

Engine::Engine(Model& model, const Kernels& kernels, const EngineConfig& config, Model* draft_model)
    : impl_(std::make_unique<Impl>(model, kernels, config, draft_model)) {}
Engine::~Engine() = default;

std::unique_ptr<RequestHandle> Engine::submit(Request request) { return impl_->submit(std::move(request)); }
void Engine::end_session(uint64_t session_id) { impl_->end_session(session_id); }
EngineStats Engine::stats() const { return impl_->stats(); }
int64_t Engine::session_len() const { return impl_->config().session_len; }
const EngineConfig& Engine::config() const { return impl_->config(); }
bool Engine::closed() const { return impl_->closed(); }
bool Engine::on_own_thread() const { return impl_->on_own_thread(); }
void Engine::close() { impl_->close(); }

}  // namespace lmdeploy
