// A forward pass allocates nothing once its buffers have grown, on any thread.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "family_configs.h"
#include "lmdeploy/models/step_runner.h"
#include "random_family.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> num_allocations{0};

void* allocate(size_t size, size_t alignment) {
  if (counting) ++num_allocations;
  void* memory = alignment == 0
                     ? std::malloc(size)
                     : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inline: g++ 12 would see malloc() meet operator delete.
[[gnu::noinline]] void* operator new(size_t size) { return allocate(size, 0); }
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace lmdeploy::testing {
namespace {

// Counts what forward() of another model allocates.
class Counted final : public Model {
 public:
  explicit Counted(std::unique_ptr<Model> model) : model_(std::move(model)) {}
  const DecoderSpec& spec() const override { return model_->spec(); }
  KvLayout kv_layout(DType dtype, int64_t block_len) const override {
    return model_->kv_layout(dtype, block_len);
  }
  std::span<const KvGroup> kv_groups() const override { return model_->kv_groups(); }
  TensorView forward(const StepInput& input, const KvCacheView& cache) override {
    counting = true;
    const TensorView logits = model_->forward(input, cache);
    counting = false;
    return logits;
  }
  ConstTensorView hidden_states() const override { return model_->hidden_states(); }
  size_t weight_bytes() const override { return model_->weight_bytes(); }
  size_t buffer_bytes() const override { return model_->buffer_bytes(); }
  StepWork step_work(const StepShape& shape, DType dtype) const override {
    return model_->step_work(shape, dtype);
  }

 private:
  std::unique_ptr<Model> model_;
};

class Allocation : public ::testing::TestWithParam<std::string> {};

TEST_P(Allocation, NoneOnceTheSameStepsHaveRun) {
  const auto kernels = make_cpu_kernels(std::make_shared<ThreadPool>(2), {});
  Draw draw(7);
  const MemoryCheckpoint checkpoint = make_random_family(family_config(GetParam(), draw), 7);
  Counted model(load_model(checkpoint, *kernels, {.max_step_tokens = 64, .max_logit_rows = 2}));
  StepRunner runner(model, *kernels, {.num_sequences = 1, .max_tokens = 40});
  const std::vector<int> prompt = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
  runner.greedy(0, prompt, 8);
  EXPECT_GT(num_allocations, 0) << "the counter works: first steps grow their buffers";
  // A thread's own buffers grow with its first piece of work, which it may miss for some runs.
  constexpr int kMostRuns = 50;
  for (int run = 0; run < kMostRuns && num_allocations > 0; ++run) {
    num_allocations = 0;
    runner.greedy(0, prompt, 8);
  }
  EXPECT_EQ(num_allocations, 0);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Allocation, ::testing::ValuesIn(supported_architectures()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lmdeploy::testing
