// Running many prompts together and collecting their answers in order.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

/// One answer to come.
struct BatchJob {
  size_t prompt = 0;  // whose answer
  std::unique_ptr<ResponseStream> stream;
};

/// Reads all streams to their end as their pieces come, whichever is ready first. Result i is that of job i.
/// `poll` gets the number of prompts all of whose jobs are done, some ten times a second; what it throws goes
/// through, and with the jobs everything running is cancelled.
std::vector<Response> collect(std::vector<BatchJob> jobs, const std::function<void(size_t done)>& poll);

}  // namespace lmdeploy
