// Submitting, stepping, collecting.
#include "core_driver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "lmdeploy/core/random.h"

namespace lmdeploy::testing {

CoreDriver::CoreDriver(Model& model, const EngineConfig& config, Model* draft_model)
    : kernels_(make_ref_kernels(std::make_shared<ThreadPool>(1))),
      config_(resolve_config(config, model, /*available_bytes=*/size_t{64} << 20, draft_model)),
      core_(model, *kernels_, config_, draft_model) {}

CoreDriver::CoreDriver(Model& model, const EngineConfig& config, const Kernels& kernels)
    : config_(resolve_config(config, model, /*available_bytes=*/size_t{64} << 20, nullptr)),
      core_(model, kernels, config_) {}

std::shared_ptr<Client> CoreDriver::submit(Request request) {
  auto client = std::make_shared<Client>();
  client->id = ++last_id_;
  commands_.emplace_back(SubmitCommand{client->id, std::move(request), client->channel});
  clients_.push_back(client);
  return client;
}

void CoreDriver::step() {
  core_.step(commands_);
  core_.check_invariants();
  core_.scrub_free_blocks();
  const EngineStats s = core_.stats();
  ASSERT_EQ(s.free_blocks + s.used_blocks + s.cached_blocks, s.total_blocks);
  core_.deliver();
  std::erase_if(clients_, [](const std::shared_ptr<Client>& client) {
    if (auto output = client->channel->next(std::chrono::milliseconds{0}))
      merge_output(client->output, std::move(*output));
    return client->done();
  });
}

void CoreDriver::run(int64_t max_steps) {
  for (int64_t i = 0; !clients_.empty(); ++i) {
    ASSERT_LT(i, max_steps) << clients_.size() << " requests do not end";
    step();
  }
}

RequestOutput CoreDriver::complete(Request request) {
  const std::shared_ptr<Client> client = submit(std::move(request));
  run();
  return client->output;
}

EngineConfig small_config(int64_t num_groups) {
  EngineConfig config;
  config.block_len = 4;
  config.num_blocks = 64 * num_groups;
  config.session_len = 256;
  config.max_batch_size = 8;
  config.max_prefill_token_num = 64;
  config.kv_dtype = DType::kF32;
  return config;
}

EngineConfig guessing(EngineConfig config, int64_t num_tokens, SpeculativeMethod method) {
  config.speculative = {.method = method, .num_tokens = num_tokens, .always = true};
  return config;
}

Request request_of(std::vector<int> input_ids, int64_t max_new_tokens) {
  Request request;
  request.input_ids = std::move(input_ids);
  request.max_new_tokens = max_new_tokens;
  return request;
}

Request turn_of(uint64_t session_id, std::vector<int> input_ids, int64_t max_new_tokens, bool start) {
  Request request = request_of(std::move(input_ids), max_new_tokens);
  request.session_id = session_id;
  request.sequence_start = start;
  request.sequence_end = false;
  return request;
}

std::vector<int> random_ids(uint64_t seed, int64_t count) {
  Rng rng(seed);
  std::vector<int> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int>(rng.below(60)));
  return ids;
}

std::vector<int> read_all(RequestHandle& handle) {
  std::vector<int> ids;
  while (const auto output = handle.next(std::chrono::seconds(60))) {
    ids.insert(ids.end(), output->token_ids.begin(), output->token_ids.end());
    EXPECT_NE(output->finish, FinishReason::kError) << output->error_message;
    if (output->finish != FinishReason::kNone) return ids;
  }
  ADD_FAILURE() << "no last output";
  return ids;
}

std::vector<int> concat(std::vector<int> a, const std::vector<int>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace lmdeploy::testing
