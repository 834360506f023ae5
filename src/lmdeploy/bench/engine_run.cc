#include "lmdeploy/bench/engine_run.h"

#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr std::chrono::milliseconds kPatience{1000};

}  // namespace

EngineRun::EngineRun(const LoadedModel& loaded, int64_t batch, std::span<const int> prompt,
                     int64_t new_tokens)
    : engine_(*loaded.runtime->engine), num_waiting_(batch), generated_before_(generated()) {
  for (int64_t i = 0; i < batch; ++i) {
    Request request;
    request.input_ids.assign(prompt.begin(), prompt.end());
    request.max_new_tokens = new_tokens;
    streams_.push_back(std::make_unique<EngineStream>(engine_.submit(std::move(request)),
                                                      TextStream(loaded.info.tokenizer, {})));
    streams_.back()->set_notify([this, first = true]() mutable {
      if (std::exchange(first, false)) note_first_token();
    });
  }
}

void EngineRun::read_to_end() {
  for (bool running = true; running;) {
    running = false;
    for (const auto& stream : streams_) {
      if (stream->finished()) continue;
      const std::optional<Response> piece = stream->next(kPatience);
      if (piece && piece->error_code) throw Error(*piece->error_code, piece->error_message);
      running = true;
    }
  }
  end_ = Clock::now();
}

double EngineRun::decode_rate() const {
  const auto rate = [this](int64_t before, Clock::time_point from) {
    return static_cast<double>(generated() - before) / std::chrono::duration<double>(end_ - from).count();
  };
  if (generated() == generated_at_start_) return rate(generated_before_, submitted_);
  return rate(generated_at_start_, all_started_);
}

void EngineRun::note_first_token() {
  const std::lock_guard lock(mutex_);
  if (--num_waiting_ > 0) return;
  all_started_ = Clock::now();
  generated_at_start_ = generated();
}

}  // namespace lmdeploy
