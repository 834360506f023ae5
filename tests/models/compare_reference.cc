// compare_reference FOLDER...: checkpoints that tools/make_reference_models.py made against the logits beside
// them, on the f64 reference and on the best CPU back end. Ends with status 1 when one departs by more than
// 2e-4 of the largest logit.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/models/step_runner.h"

namespace lmdeploy {
namespace {

constexpr double kShareOfLargest = 2e-4;
constexpr int kPrompts = 3;

ConstTensorView find(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsTensor* tensor = file.find(name);
  if (tensor == nullptr) throw Error(ErrorCode::kNotFound, cat("no tensor ", name));
  return {tensor->data, tensor->dtype, tensor->shape};
}

std::vector<int> ints(ConstTensorView values) {
  std::vector<int> out;
  for (int64_t i = 0; i < values.cols(); ++i) out.push_back(static_cast<int>(values.at(i)));
  return out;
}

/// The largest difference as a share of the largest logit; the prompt goes in pieces of 5.
double worst_difference(Model& model, const Kernels& kernels, const SafetensorsFile& file) {
  double worst = 0;
  for (int k = 0; k < kPrompts; ++k) {
    StepRunner runner(model, kernels,
                      {.kv_dtype = kernels.activation_dtype(), .max_tokens = 64, .block_len = 4});
    const std::vector<int> ids = ints(find(file, cat("ids_", k)));
    const ConstTensorView want = find(file, cat("logits_", k));
    double largest = 0, difference = 0;
    runner.start(0, static_cast<int64_t>(ids.size()));
    for (size_t begin = 0; begin < ids.size(); begin += 5) {
      const size_t count = std::min<size_t>(5, ids.size() - begin);
      const StepRunner::Chunk chunk = {.ids = {ids.data() + begin, count},
                                       .num_logits = static_cast<int64_t>(count)};
      const ConstTensorView got = runner.step({&chunk, 1});
      for (int64_t r = 0; r < got.rows(); ++r) {
        for (int64_t c = 0; c < got.cols(); ++c) {
          const double w = want.at(static_cast<int64_t>(begin) + r, c);
          largest = std::max(largest, std::abs(w));
          difference = std::max(difference, std::abs(got.at(r, c) - w));
        }
      }
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

bool compare(const std::string& folder, const Kernels& kernels) {
  try {
    const SafetensorsFile file(folder + "/expected.safetensors");
    const auto checkpoint = open_checkpoint(folder);
    const auto model = load_model(*checkpoint, kernels, {.max_step_tokens = 64, .max_logit_rows = 64});
    const double worst = worst_difference(*model, kernels, file);
    std::printf("%-9s %-60s %.1e%s\n", kernels.name().c_str(), folder.c_str(), worst,
                worst <= kShareOfLargest ? "" : "  TOO FAR");
    return worst <= kShareOfLargest;
  } catch (const std::exception& error) {
    std::printf("%-9s %s: %s\n", kernels.name().c_str(), folder.c_str(), error.what());
    return false;
  }
}

}  // namespace
}  // namespace lmdeploy

int main(int argc, char** argv) {
  using namespace lmdeploy;
  const auto threads = std::make_shared<ThreadPool>(1);
  const std::unique_ptr<Kernels> backends[] = {make_ref_kernels(threads), make_cpu_kernels(threads)};
  int failed = 0;
  for (int i = 1; i < argc; ++i)
    for (const auto& kernels : backends) failed += compare(argv[i], *kernels) ? 0 : 1;
  std::printf("%d of %d departed\n", failed, 2 * (argc - 1));
  return failed == 0 ? 0 : 1;
}
