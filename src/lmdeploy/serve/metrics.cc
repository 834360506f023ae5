#include "lmdeploy/serve/metrics.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

namespace lmdeploy {
namespace {

using Clock = std::chrono::steady_clock;

const std::vector<double> kFirstTokenBounds = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                               1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> kTokenBounds = {.005, .01, .025, .05, .075, .1,  .15, .2, .3, .4,
                                          .5,   .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kLatencyBounds = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                            30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kRatioBounds = {0, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1};

/// 1, 2, 5, 10, ... up to `last`.
std::vector<double> one_two_five(int64_t last) {
  std::vector<double> bounds;
  for (int64_t power = 1; power <= last; power *= 10)
    for (const int64_t digit : {1, 2, 5})
      if (power * digit <= last) bounds.push_back(static_cast<double>(power * digit));
  return bounds;
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string label_text(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text;
}

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

Histogram::Histogram(std::vector<double> bounds, std::vector<int64_t> counts, double sum)
    : bounds_(std::move(bounds)), counts_(std::move(counts)), sum_(sum) {}

void Histogram::add(double value, int64_t times) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<size_t>(bound - bounds_.begin())] += times;
  sum_ += value * static_cast<double>(times);
}

void Histogram::print(std::string& out, const std::string& name, const std::string& labels) const {
  int64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    out += fmt::format("lmdeploy:{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bound, total);
  }
  out += fmt::format("lmdeploy:{}_sum{{{}}} {}\nlmdeploy:{}_count{{{}}} {}\n", name, labels, sum_, name,
                     labels, total);
}

/// Prometheus' text form, written line by line.
class Metrics::Page {
 public:
  explicit Page(const std::string& labels) : labels_(labels) {}

  void type(const char* name, const char* kind, const char* help) {
    text_ += fmt::format("# HELP lmdeploy:{} {}\n# TYPE lmdeploy:{} {}\n", name, help, name, kind);
  }
  void value(const char* name, double value, const std::string& more_labels = {}) {
    text_ += fmt::format("lmdeploy:{}{{{}{}}} {}\n", name, labels_, more_labels, value);
  }
  void gauge(const char* name, double number, const char* help) {
    type(name, "gauge", help);
    value(name, number);
  }
  void gauge(const char* name, int64_t number, const char* help) {
    gauge(name, static_cast<double>(number), help);
  }
  void counter(const char* name, int64_t number, const char* help) {
    type(name, "counter", help);
    value(name, static_cast<double>(number));
  }
  void histogram(const char* name, const Histogram& values, const char* help) {
    type(name, "histogram", help);
    values.print(text_, name, labels_);
  }
  std::string text() { return std::move(text_); }

 private:
  const std::string& labels_;
  std::string text_;
};

namespace {

const char* flag_text(bool flag) { return flag ? "True" : "False"; }

template <typename Page>
void print_config(Page& page, const EngineConfig& config) {
  page.type("backend_config_info", "gauge", "How the engine was started");
  page.value(
      "backend_config_info", 1,
      fmt::format(",session_len=\"{}\",max_batch_size=\"{}\",cache_block_seq_len=\"{}\",num_blocks=\"{}\","
                  "max_prefill_token_num=\"{}\",enable_prefix_caching=\"{}\",kv_cache=\"{}\"",
                  config.session_len, config.max_batch_size, config.block_len, config.num_blocks,
                  config.max_prefill_token_num, flag_text(config.enable_prefix_caching),
                  kv_name(config.kv_dtype)));
}

Histogram step_tokens(const StepTokens& steps) {
  return Histogram({StepTokens::kBounds.begin(), StepTokens::kBounds.end()},
                   {steps.counts.begin(), steps.counts.end()}, static_cast<double>(steps.sum));
}

template <typename Page>
void print_engine(Page& page, const EngineStats& engine) {
  page.gauge("num_requests_running", engine.running, "Sequences in the running batch");
  page.gauge("num_requests_waiting", engine.waiting, "Sequences in the engine's queue");
  page.gauge("gpu_cache_usage_perc", ratio(engine.used_blocks, engine.total_blocks),
             "Share of the blocks of keys and values in use");
  page.gauge("prefix_cache_hit_rate", ratio(engine.prefix_hit_tokens, engine.prefix_queried_tokens),
             "Prompt tokens found in the prefix cache");
  page.gauge("num_free_blocks", engine.free_blocks, "Blocks of keys and values that hold nothing");
  page.gauge("num_used_blocks", engine.used_blocks, "Blocks of keys and values in use");
  page.gauge("num_cached_blocks", engine.cached_blocks, "Blocks kept for their content alone");
  page.gauge("num_total_blocks", engine.total_blocks, "All blocks of keys and values");
  page.gauge("num_sessions", engine.sessions, "Sessions kept between requests");
  page.counter("num_preemptions_total", engine.preemptions, "Sequences that lost their blocks to others");
  page.counter("num_steps_total", engine.steps, "Steps of the engine");
  page.histogram("iteration_tokens_total", step_tokens(engine.step_tokens), "Tokens in a step");
}

// As LMDeploy names them; a draft's own token counts for the accepted length.
template <typename Page>
void print_speculative(Page& page, const SpeculativeStats& stats) {
  page.counter("spec_decode_num_drafts_total", stats.num_drafts,
               "Times that tokens of a sequence were guessed");
  page.counter("spec_decode_num_draft_tokens_total", stats.num_draft_tokens, "Tokens guessed");
  page.counter("spec_decode_num_accepted_tokens_total", stats.num_accepted_tokens, "Guesses that were right");
  page.gauge("spec_decode_mean_accept_rate", ratio(stats.num_accepted_tokens, stats.num_draft_tokens),
             "Share of guesses that were right");
  page.gauge("spec_decode_mean_accept_length",
             stats.num_drafts == 0 ? 0 : 1 + ratio(stats.num_accepted_tokens, stats.num_drafts),
             "Tokens that a step with guesses gave a sequence");
  page.type("spec_decode_num_accepted_tokens_per_pos_total", "counter", "Right guesses by position");
  for (size_t i = 0; i < stats.num_accepted_tokens_per_pos.size(); ++i)
    if (stats.num_accepted_tokens_per_pos[i] > 0)
      page.value("spec_decode_num_accepted_tokens_per_pos_total",
                 static_cast<double>(stats.num_accepted_tokens_per_pos[i]),
                 fmt::format(",position=\"{}\"", i));
}

template <typename Page>
void print_groups(Page& page, const std::vector<QosGroupCounts>& groups) {
  if (groups.empty()) return;
  const auto print = [&](const char* name, const char* kind, int64_t QosGroupCounts::*member,
                         const char* help) {
    page.type(name, kind, help);
    for (const QosGroupCounts& group : groups)
      page.value(name, static_cast<double>(group.*member),
                 fmt::format(",group=\"{}\"", label_text(group.name)));
  };
  print("qos_requests_waiting", "gauge", &QosGroupCounts::waiting, "Requests of a group that wait");
  print("qos_requests_running", "gauge", &QosGroupCounts::running, "Requests of a group that run");
  print("qos_requests_total", "counter", &QosGroupCounts::begun, "Requests of a group that were begun");
}

}  // namespace

Metrics::Metrics(std::string model_name, int64_t session_len)
    : labels_(fmt::format("model_name=\"{}\",engine=\"0\"", label_text(model_name))),
      first_token_s_(kFirstTokenBounds),
      token_s_(kTokenBounds),
      between_tokens_s_(kTokenBounds),
      seconds_(kLatencyBounds),
      queue_s_(kLatencyBounds),
      inference_s_(kLatencyBounds),
      prefill_s_(kLatencyBounds),
      decode_s_(kLatencyBounds),
      prompt_(one_two_five(session_len)),
      generation_(one_two_five(session_len)),
      cached_(one_two_five(session_len)),
      hit_ratio_(kRatioBounds) {}

void Metrics::finished(const Finished& request) {
  const RequestTimes& times = request.times;
  const auto add_time = [](Histogram& histogram, RequestTimes::Time from, RequestTimes::Time to) {
    if (from != RequestTimes::Time() && to >= from) histogram.add(seconds_between(from, to));
  };
  const std::lock_guard lock(mutex_);
  ++by_reason_[std::string(to_string(request.reason))];
  prompt_tokens_ += request.prompt_tokens;
  cached_tokens_ += request.cached_tokens;
  generated_tokens_ += request.generated_tokens;
  prompt_.add(static_cast<double>(request.prompt_tokens));
  generation_.add(static_cast<double>(request.generated_tokens));
  cached_.add(static_cast<double>(request.cached_tokens));
  hit_ratio_.add(ratio(request.cached_tokens, request.prompt_tokens));
  add_time(seconds_, request.arrival, times.finished);
  add_time(queue_s_, times.enqueued, times.scheduled);
  add_time(inference_s_, times.scheduled, times.finished);
  add_time(prefill_s_, times.scheduled, times.first_token);
  add_time(decode_s_, times.first_token, times.finished);
  add_time(first_token_s_, request.arrival, times.first_token);
  if (request.generated_tokens > 1 && times.first_token != RequestTimes::Time())
    token_s_.add(seconds_between(times.first_token, times.finished) /
                 static_cast<double>(request.generated_tokens - 1));
}

void Metrics::tokens_came(double seconds, int64_t count) {
  const std::lock_guard lock(mutex_);
  between_tokens_s_.add(seconds, count);
}

Metrics::Outcomes Metrics::count_outcomes() const {
  Outcomes outcomes;
  for (const auto& [reason, number] : by_reason_)
    (reason == "stop" || reason == "length" ? outcomes.succeeded : outcomes.failed) += number;
  return outcomes;
}

Metrics::Outcomes Metrics::outcomes() const {
  const std::lock_guard lock(mutex_);
  return count_outcomes();
}

std::string Metrics::page(const EngineStats& engine, const EngineConfig& config,
                          const ServerSide& server) const {
  const std::lock_guard lock(mutex_);
  Page page(labels_);
  print_config(page, config);
  print_server(page, server);
  print_groups(page, server.groups);
  print_engine(page, engine);
  print_speculative(page, engine.speculative);
  print_requests(page);
  return page.text();
}

void Metrics::print_server(Page& page, const ServerSide& server) const {
  const Outcomes outcomes = count_outcomes();
  page.gauge("num_requests_succeeded", outcomes.succeeded, "Requests that ended by a stop or by length");
  page.gauge("num_requests_failed", outcomes.failed, "Requests that were aborted or failed");
  page.gauge("num_api_requests_routed", server.api_running,
             "API requests that have their place in the engine");
  page.gauge("num_api_requests_waiting", server.api_waiting, "API requests that wait for a place");
  page.gauge("num_connections", server.connections, "Open connections");
  page.counter("num_requests_refused_total", server.refused,
               "Requests turned away because the queue was full");
}

void Metrics::print_requests(Page& page) const {
  page.counter("prompt_tokens_total", prompt_tokens_, "Prompt tokens of ended requests");
  page.counter("generation_tokens_total", generated_tokens_, "Generated tokens of ended requests");
  page.counter("cached_tokens_total", cached_tokens_, "Prompt tokens of ended requests that were cached");
  page.type("request_success_total", "counter", "Ended requests by reason");
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    const auto number = by_reason_.find(reason);
    page.value("request_success_total", number == by_reason_.end() ? 0 : static_cast<double>(number->second),
               fmt::format(",finished_reason=\"{}\"", reason));
  }
  page.histogram("time_to_first_token_seconds", first_token_s_, "From arrival to the first token");
  page.histogram("time_per_output_token_seconds", token_s_, "Between tokens, mean of a request");
  page.histogram("iter_token_latency", between_tokens_s_, "Between tokens");
  page.histogram("e2e_request_latency_seconds", seconds_, "From arrival to the end");
  page.histogram("request_queue_time_seconds", queue_s_, "In the engine's queue");
  page.histogram("request_inference_time_seconds", inference_s_, "From the first step to the end");
  page.histogram("request_prefill_time_seconds", prefill_s_, "From the first step to the first token");
  page.histogram("request_decode_time_seconds", decode_s_, "From the first token to the end");
  page.histogram("request_prompt_tokens", prompt_, "Prompt tokens of a request");
  page.histogram("request_generation_tokens", generation_, "Generated tokens of a request");
  page.histogram("request_cached_tokens", cached_, "Cached prompt tokens of a request");
  page.histogram("request_cache_hit_ratio", hit_ratio_, "Cached share of a request's prompt");
}

std::string throughput_line(const EngineStats& before, const EngineStats& now, double seconds,
                            const Metrics::Outcomes& outcomes, const Metrics::ServerSide& server) {
  const auto rate = [&](int64_t from, int64_t to) { return static_cast<double>(to - from) / seconds; };
  return fmt::format(
      "Avg thr (in/out): {:.1f} / {:.1f} tokens/s, Server (succeeded/failed/routed/waiting): {} / {} / {} / "
      "{}, "
      "Engine (running/waiting): {} / {}, KV cache: {:.1f}%",
      rate(before.prompt_tokens, now.prompt_tokens), rate(before.generated_tokens, now.generated_tokens),
      outcomes.succeeded, outcomes.failed, server.api_running, server.api_waiting, now.running, now.waiting,
      100 * ratio(now.used_blocks, now.total_blocks));
}

RequestRecord::RequestRecord(std::shared_ptr<Metrics> metrics, RequestTimes::Time arrival)
    : metrics_(std::move(metrics)) {
  request_.arrival = arrival;
}

RequestRecord::~RequestRecord() {
  if (metrics_) finish(FinishReason::kAbort);
}

void RequestRecord::progress(const Response& piece) {
  const int64_t count = piece.generate_token_len - request_.generated_tokens;
  if (count > 0 && metrics_) {
    const Clock::time_point now = Clock::now();
    if (request_.generated_tokens > 0)
      metrics_->tokens_came(seconds_between(last_piece_, now) / static_cast<double>(count), count);
    last_piece_ = now;
  }
  request_.prompt_tokens = piece.input_token_len;
  request_.cached_tokens = piece.cached_tokens;
  request_.generated_tokens = piece.generate_token_len;
  request_.times = piece.times;
}

void RequestRecord::finish(FinishReason reason) {
  const std::shared_ptr<Metrics> metrics = std::exchange(metrics_, nullptr);
  if (!metrics) return;
  request_.reason = reason;
  if (request_.times.finished == RequestTimes::Time()) request_.times.finished = Clock::now();
  metrics->finished(request_);
}

}  // namespace lmdeploy
