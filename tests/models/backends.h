// The back ends that model tests run on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy::testing {

/// "ref" and the CPU back end of each instruction set that this machine has: names fit for test names.
std::vector<std::string> backend_names();
/// "cuda_f32", "cuda_f16" and "cuda_bf16" in builds with CUDA: tests of them end with LMD_REQUIRE_GPU where
/// there is no GPU.
std::vector<std::string> cuda_names();
/// `device`: of a CUDA back end.
std::unique_ptr<Kernels> make_backend(const std::string& name, int device = 0);
/// One shared object for each name.
const Kernels& backend(const std::string& name);
/// The KV dtype in which a back end loses nothing against its activations.
DType exact_kv_dtype(const Kernels& kernels);

/// Logits of all tokens of one prompt, which goes in pieces of these sizes, over and over. The cache loses
/// nothing unless it has another `kv_dtype`.
Tensor all_logits(Model& model, const Kernels& kernels, const std::vector<int>& ids,
                  const std::vector<size_t>& sizes, std::optional<DType> kv_dtype = std::nullopt);

/// A tiny checkpoint: in the folder that LMDEPLOY_TEST_MODELS names, in the repository or beside it; "" when
/// it is in none of them.
std::string find_fixture(const std::string& name);

}  // namespace lmdeploy::testing

/// Skips a test of a CUDA back end aloud on a machine without a GPU.
#define LMD_REQUIRE_GPU(name)                                                  \
  if ((name).starts_with("cuda") && ::lmdeploy::cuda_status().devices.empty()) \
  GTEST_SKIP() << ::lmdeploy::cuda_status().problem
