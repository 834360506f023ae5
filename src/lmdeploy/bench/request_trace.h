// Requests as a server gets them: lengths and arrivals from a seed.
#pragma once

#include <cstdint>
#include <vector>

namespace lmdeploy {

struct TraceRequest {
  double arrival_s = 0;  // after the start
  int64_t prompt_tokens = 0, output_tokens = 0;
};

/// Log-normal lengths with these means: by default those of ShareGPT's dialogues.
struct TraceOptions {
  int64_t num_requests = 1000;
  double mean_prompt = 225, mean_output = 195;  // tokens
  int64_t longest = 1024;                       // of prompts and of outputs; longer ones are cut
  uint64_t seed = 1;
};

/// All arrive at the start.
std::vector<TraceRequest> make_trace(const TraceOptions& options);

/// The same requests, arriving by a Poisson process; the first one at the start.
std::vector<TraceRequest> with_arrivals(std::vector<TraceRequest> trace, double requests_per_s,
                                        uint64_t seed);

}  // namespace lmdeploy
