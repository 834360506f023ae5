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

void print_type(std::string& out, const char* name, const char* type, const char* help) {
  out += fmt::format("# HELP lmdeploy:{} {}\n# TYPE lmdeploy:{} {}\n", name, help, name, type);
}

void print_value(std::string& out, const char* name, const char* type, const std::string& labels,
                 double value, const char* help) {
  print_type(out, name, type, help);
  out += fmt::format("lmdeploy:{}{{{}}} {}\n", name, labels, value);
}

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// As LMDeploy names them; a draft's own token counts for the accepted length.
void print_speculative(std::string& out, const std::string& labels, const SpeculativeStats& stats) {
  const auto counter = [&](const char* name, int64_t value, const char* help) {
    print_value(out, name, "counter", labels, static_cast<double>(value), help);
  };
  counter("spec_decode_num_drafts_total", stats.num_drafts, "Times that tokens of a sequence were guessed");
  counter("spec_decode_num_draft_tokens_total", stats.num_draft_tokens, "Tokens guessed");
  counter("spec_decode_num_accepted_tokens_total", stats.num_accepted_tokens, "Guesses that were right");
  print_value(out, "spec_decode_mean_accept_rate", "gauge", labels,
              ratio(stats.num_accepted_tokens, stats.num_draft_tokens), "Share of guesses that were right");
  print_value(out, "spec_decode_mean_accept_length", "gauge", labels,
              stats.num_drafts == 0 ? 0 : 1 + ratio(stats.num_accepted_tokens, stats.num_drafts),
              "Tokens that a step with guesses gave a sequence");
  print_type(out, "spec_decode_num_accepted_tokens_per_pos_total", "counter", "Right guesses by position");
  for (size_t i = 0; i < stats.num_accepted_tokens_per_pos.size(); ++i)
    if (stats.num_accepted_tokens_per_pos[i] > 0)
      out += fmt::format("lmdeploy:spec_decode_num_accepted_tokens_per_pos_total{{{},position=\"{}\"}} {}\n",
                         labels, i, stats.num_accepted_tokens_per_pos[i]);
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::add(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bound - bounds_.begin())];
  sum_ += value;
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

Metrics::Metrics(std::string model_name, int64_t session_len)
    : labels_(fmt::format("model_name=\"{}\",engine=\"0\"", label_text(model_name))),
      first_token_s_(kFirstTokenBounds),
      token_s_(kTokenBounds),
      seconds_(kLatencyBounds),
      decode_s_(kLatencyBounds),
      prompt_(one_two_five(session_len)),
      generation_(one_two_five(session_len)),
      cached_(one_two_five(session_len)),
      hit_ratio_(kRatioBounds) {}

void Metrics::started() {
  const std::lock_guard lock(mutex_);
  ++running_;
  ++received_;
}

void Metrics::finished(const Finished& request) {
  const std::lock_guard lock(mutex_);
  --running_;
  ++by_reason_[std::string(to_string(request.reason))];
  prompt_tokens_ += request.prompt_tokens;
  cached_tokens_ += request.cached_tokens;
  generated_tokens_ += request.generated_tokens;
  seconds_.add(request.seconds);
  prompt_.add(static_cast<double>(request.prompt_tokens));
  generation_.add(static_cast<double>(request.generated_tokens));
  cached_.add(static_cast<double>(request.cached_tokens));
  hit_ratio_.add(ratio(request.cached_tokens, request.prompt_tokens));
  if (request.first_token_s < 0) return;
  first_token_s_.add(request.first_token_s);
  decode_s_.add(request.decode_s);
  if (request.generated_tokens > 1)
    token_s_.add(request.decode_s / static_cast<double>(request.generated_tokens - 1));
}

std::string Metrics::page(const EngineStats& engine, const ServerSide& server) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  const auto gauge = [&](const char* name, double value, const char* help) {
    print_value(out, name, "gauge", labels_, value, help);
  };
  const auto counter = [&](const char* name, double value, const char* help) {
    print_value(out, name, "counter", labels_, value, help);
  };
  const auto histogram = [&](const char* name, const Histogram& values, const char* help) {
    print_type(out, name, "histogram", help);
    values.print(out, name, labels_);
  };
  const auto count = [](int64_t value) { return static_cast<double>(value); };
  int64_t succeeded = 0, failed = 0;
  for (const auto& [reason, number] : by_reason_)
    (reason == "stop" || reason == "length" ? succeeded : failed) += number;
  gauge("num_requests_succeeded", count(succeeded), "Requests that ended by a stop or by length");
  gauge("num_requests_failed", count(failed), "Requests that were aborted or failed");
  gauge("num_api_requests_routed", count(server.api_running),
        "API requests that have their place in the engine");
  gauge("num_api_requests_waiting", count(server.api_waiting), "API requests that wait for a place");
  gauge("num_requests_running", count(engine.running), "Sequences in the running batch");
  gauge("num_requests_waiting", count(engine.waiting), "Sequences in the engine's queue");
  gauge("num_connections", count(server.connections), "Open connections");
  gauge("gpu_cache_usage_perc", ratio(engine.used_blocks, engine.total_blocks),
        "Share of the blocks of keys and values in use");
  gauge("prefix_cache_hit_rate", ratio(engine.prefix_hit_tokens, engine.prefix_queried_tokens),
        "Prompt tokens found in the prefix cache");
  gauge("num_free_blocks", count(engine.free_blocks), "Blocks of keys and values that hold nothing");
  gauge("num_used_blocks", count(engine.used_blocks), "Blocks of keys and values in use");
  gauge("num_cached_blocks", count(engine.cached_blocks), "Blocks kept for their content alone");
  gauge("num_total_blocks", count(engine.total_blocks), "All blocks of keys and values");
  gauge("num_sessions", count(engine.sessions), "Sessions kept between requests");
  counter("prompt_tokens_total", count(prompt_tokens_), "Prompt tokens of ended requests");
  counter("generation_tokens_total", count(generated_tokens_), "Generated tokens of ended requests");
  counter("cached_tokens_total", count(cached_tokens_), "Prompt tokens of ended requests that were cached");
  counter("num_requests_refused_total", count(server.refused),
          "Requests turned away because the queue was full");
  counter("num_preemptions_total", count(engine.preemptions), "Sequences that lost their blocks to others");
  print_speculative(out, labels_, engine.speculative);
  print_type(out, "request_success_total", "counter", "Ended requests by reason");
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    const auto number = by_reason_.find(reason);
    out += fmt::format("lmdeploy:request_success_total{{{},finished_reason=\"{}\"}} {}\n", labels_, reason,
                       number == by_reason_.end() ? 0 : number->second);
  }
  histogram("time_to_first_token_seconds", first_token_s_, "From arrival to the first token");
  histogram("time_per_output_token_seconds", token_s_, "Between tokens, mean of a request");
  histogram("e2e_request_latency_seconds", seconds_, "From arrival to the end");
  histogram("request_decode_time_seconds", decode_s_, "From the first token to the end");
  histogram("request_prompt_tokens", prompt_, "Prompt tokens of a request");
  histogram("request_generation_tokens", generation_, "Generated tokens of a request");
  histogram("request_cached_tokens", cached_, "Cached prompt tokens of a request");
  histogram("request_cache_hit_ratio", hit_ratio_, "Cached share of a request's prompt");
  return out;
}

RequestRecord::RequestRecord(std::shared_ptr<Metrics> metrics)
    : metrics_(std::move(metrics)), start_(Clock::now()) {
  metrics_->started();
}

RequestRecord::~RequestRecord() {
  if (metrics_) finish(FinishReason::kAbort);
}

void RequestRecord::progress(int64_t prompt_tokens, int64_t cached_tokens, int64_t generated_tokens) {
  if (request_.generated_tokens == 0 && generated_tokens > 0) {
    first_token_ = Clock::now();
    request_.first_token_s = seconds_between(start_, first_token_);
  }
  request_.prompt_tokens = prompt_tokens;
  request_.cached_tokens = cached_tokens;
  request_.generated_tokens = generated_tokens;
}

void RequestRecord::finish(FinishReason reason) {
  const std::shared_ptr<Metrics> metrics = std::exchange(metrics_, nullptr);
  if (!metrics) return;
  const Clock::time_point now = Clock::now();
  request_.reason = reason;
  request_.seconds = seconds_between(start_, now);
  if (request_.first_token_s >= 0) request_.decode_s = seconds_between(first_token_, now);
  metrics->finished(request_);
}

}  // namespace lmdeploy
