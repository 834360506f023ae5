// Models whose ranks are threads of the test.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "backends.h"

namespace lmdeploy::testing {

constexpr std::chrono::milliseconds kRankTimeout{60'000};

/// A model dealt out to ranks, each with a back end of its own.
class RankedModel {
 public:
  /// In host memory.
  RankedModel(const Checkpoint& checkpoint, std::vector<std::unique_ptr<Kernels>> kernels,
              const LoadOptions& options, std::chrono::milliseconds timeout = kRankTimeout);
  /// Back ends of a name of backend_names() or cuda_names(); on one GPU after the other, several on each
  /// where there are fewer.
  RankedModel(const Checkpoint& checkpoint, const std::string& name, int64_t num_ranks,
              const LoadOptions& options);

  Model& model() { return *model_; }
  /// Of the first rank.
  const Kernels& kernels() const { return *kernels_[0]; }

 private:
  std::vector<std::unique_ptr<Kernels>> kernels_;
  std::unique_ptr<Model> model_;
};

/// What loading says when it refuses that many ranks; "" if it does not.
std::string refusal_of_ranks(const Checkpoint& checkpoint, int64_t num_ranks);

}  // namespace lmdeploy::testing
