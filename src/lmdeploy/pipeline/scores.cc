// Pipeline::get_ppl: how well the model predicts given ids.
#include "lmdeploy/core/error.h"
#include "lmdeploy/pipeline/pipeline_impl.h"

namespace lmdeploy {
namespace {

void check_ids(const std::vector<int>& ids, size_t index, int64_t vocab_size) {
  if (ids.size() < 2)
    throw Error(ErrorCode::kInvalidArgument,
                cat("get_ppl: input_ids[", index, "] has ", ids.size(), " ids; expected at least 2"));
  for (const int id : ids)
    if (id < 0 || id >= vocab_size)
      throw Error(ErrorCode::kInvalidArgument, cat("get_ppl: input_ids[", index, "]: id ", id,
                                                   " is outside the model's vocabulary of ", vocab_size));
}

std::unique_ptr<RequestHandle> start_scoring(Engine& engine, const std::vector<int>& ids) {
  Request request;
  request.input_ids = ids;
  request.score_prompt = true;
  return engine.submit(std::move(request));
}

double wait_for_nll(RequestHandle& handle, size_t index) {
  while (true) {
    const std::optional<RequestOutput> output = handle.next(std::chrono::seconds{1});
    if (!output || output->finish == FinishReason::kNone) continue;
    if (output->finish == FinishReason::kError)
      throw Error(output->error_code, cat("get_ppl: input_ids[", index, "]: ", output->error_message));
    if (output->finish == FinishReason::kAbort)
      throw Error(ErrorCode::kClosed,
                  cat("get_ppl: input_ids[", index, "]: the pipeline was closed meanwhile"));
    return output->prompt_nll;
  }
}

}  // namespace

std::vector<double> Pipeline::get_ppl(const std::vector<std::vector<int>>& input_ids) {
  const std::shared_ptr<Runtime> runtime = impl_->runtime();
  for (size_t i = 0; i < input_ids.size(); ++i) check_ids(input_ids[i], i, spec().vocab_size);
  std::vector<std::unique_ptr<RequestHandle>> handles;
  for (const std::vector<int>& ids : input_ids) handles.push_back(start_scoring(*runtime->engine, ids));
  std::vector<double> means;
  for (size_t i = 0; i < handles.size(); ++i)
    means.push_back(wait_for_nll(*handles[i], i) / static_cast<double>(input_ids[i].size() - 1));
  return means;
}

}  // namespace lmdeploy
