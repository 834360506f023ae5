// A trace of requests through an engine: throughput and latencies.
#pragma once

#include <cstdint>
#include <span>

#include "lmdeploy/bench/percentiles.h"
#include "lmdeploy/bench/request_trace.h"
#include "lmdeploy/engine/engine.h"

namespace lmdeploy {

struct ServingFigures {
  double seconds = 0;  // from the start to the last token
  int64_t num_requests = 0, prompt_tokens = 0, output_tokens = 0;
  int64_t largest_batch = 0;  // requests running together, looked at once a millisecond
  int64_t preemptions = 0;
  Percentiles first_token_s;  // after the request's arrival
  Percentiles token_gap_s;    // between tokens of a request

  double requests_per_s() const { return static_cast<double>(num_requests) / seconds; }
  double output_tokens_per_s() const { return static_cast<double>(output_tokens) / seconds; }
  double total_tokens_per_s() const { return static_cast<double>(prompt_tokens + output_tokens) / seconds; }
};

/// Submits each request when it arrives (they are in that order), with random ids below `vocab_size`, and
/// waits for all; ends are not honoured. Throws Error when a request fails. Nothing else may use the engine
/// meanwhile.
ServingFigures serve_trace(Engine& engine, std::span<const TraceRequest> trace, int64_t vocab_size,
                           uint64_t seed);

}  // namespace lmdeploy
