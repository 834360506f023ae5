#include "ranks.h"

#include <algorithm>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/models/model_plan.h"
#include "lmdeploy/models/sharding.h"

namespace lmdeploy::testing {
namespace {

std::vector<std::unique_ptr<Kernels>> make_backends(const std::string& name, int64_t count) {
  const auto num_devices = static_cast<int64_t>(cuda_status().devices.size());
  std::vector<std::unique_ptr<Kernels>> all;
  for (int64_t i = 0; i < count; ++i)
    all.push_back(make_backend(name, static_cast<int>(i % std::max<int64_t>(1, num_devices))));
  return all;
}

}  // namespace

RankedModel::RankedModel(const Checkpoint& checkpoint, std::vector<std::unique_ptr<Kernels>> kernels,
                         const LoadOptions& options, std::chrono::milliseconds timeout)
    : kernels_(std::move(kernels)) {
  std::vector<const Kernels*> by_rank;
  for (const auto& own : kernels_) by_rank.push_back(own.get());
  auto group = kernels_[0]->has_own_memory()
                   ? make_cuda_rank_group(by_rank, {.timeout = timeout})
                   : make_host_rank_group(static_cast<int64_t>(by_rank.size()), timeout);
  model_ = load_model(checkpoint, by_rank, std::move(group), options);
}

RankedModel::RankedModel(const Checkpoint& checkpoint, const std::string& name, int64_t num_ranks,
                         const LoadOptions& options)
    : RankedModel(checkpoint, make_backends(name, num_ranks), options) {}

std::string refusal_of_ranks(const Checkpoint& checkpoint, int64_t num_ranks) {
  const ModelPlan plan = plan_model(checkpoint);
  try {
    const Sharding sharding(plan.spec, num_ranks, shard_units(checkpoint, plan.load));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace lmdeploy::testing
