#include "lmdeploy/pipeline/device.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/models/sharding.h"
#include "lmdeploy/pipeline/engine_options.h"
#include "lmdeploy/pipeline/speculative.h"

namespace lmdeploy {
namespace {

// More than any use; sums and products of them stay far from overflow.
constexpr int64_t kMaxBatch = 65536, kMaxBlockLen = 65536, kMaxStepTokens = int64_t{1} << 24;

template <typename T>
void require(bool holds, const char* field, const T& value, std::string_view expected) {
  if (!holds) throw Error(ErrorCode::kInvalidArgument, cat(field, " is ", value, "; expected ", expected));
}

void require_between(const char* field, int64_t value, int64_t least, int64_t most) {
  require(value >= least && value <= most, field, value, cat(least, " to ", most));
}

void check_device(const std::string& device_type) {
  require(device_type == "auto" || device_type == "cpu" || device_type == "cuda", "device_type", device_type,
          "auto, cpu or cuda");
  if (device_type != "cuda") return;
  const std::string problem = cuda_status().problem;
  if (!problem.empty())
    throw Error(ErrorCode::kUnsupported,
                cat("device_type cuda: CUDA is not available: ", problem, "; use device_type cpu or auto"));
}

struct QuantPolicy {
  int number;
  std::string_view name;
  std::optional<DType> kv_dtype;  // of policies that exist
};
constexpr QuantPolicy kQuantPolicies[] = {{0, "none", {}},         {4, "int4", DType::kU4},
                                          {8, "int8", DType::kU8}, {16, "fp8_e4m3", {}},
                                          {17, "fp8_e5m2", {}},    {42, "turbo_quant", {}}};

void check_tp(const PipelineConfig& config) {
  require_between("tp", config.tp, 1, Sharding::kMostRanks);
  const std::string& communicator = config.communicator;
  require(communicator.empty() || communicator == "cuda-ipc" || communicator == "native" ||
              communicator == "nccl" || communicator == "host",
          "communicator", communicator, "cuda-ipc, native, nccl or host");
  if (config.tp == 1) return;
  const auto refuse = [&](const std::string& why, size_t instead) {
    throw Error(ErrorCode::kUnsupported,
                cat("not supported: tp ", config.tp, ", because ", why, "; use tp ", instead));
  };
  if (config.device_type == "cpu") refuse("it is for GPUs that share a model, and device_type is cpu", 1);
  const CudaStatus status = cuda_status();
  const size_t count = status.devices.size();
  if (count == 0) refuse(cat("it is for GPUs that share a model, and ", status.problem), 1);
  if (count < static_cast<size_t>(config.tp))
    refuse(cat("that many GPUs are needed, and ", count, count == 1 ? " is" : " are", " there"), count);
  if (status.devices[0].index != 0)
    refuse("the first GPU cannot be used; hide it by CUDA_VISIBLE_DEVICES", 1);
}

std::shared_ptr<ThreadPool> make_threads(int num_threads) {
  if (const int cpus = available_cpus(); num_threads > cpus)
    LMD_LOG(kWarning, "num_threads ", num_threads, " is more than the CPUs there are, ", cpus,
            ": threads will wait for each other, and steps take much longer");
  return std::make_shared<ThreadPool>(num_threads);
}

std::pair<int, int> capability(const CudaDevice& device) { return {device.major, device.minor}; }

/// bf16 for a checkpoint in bf16, as its config says or else its tensors; f16 for all others.
DType checkpoint_dtype(const Checkpoint& checkpoint) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const Json* said =
        checkpoint.config().is_object() ? checkpoint.config().get_object().if_contains(key) : nullptr;
    if (said != nullptr && said->is_string())
      return said->get_string() == "bfloat16" ? DType::kBF16 : DType::kF16;
  }
  int64_t in_bf16 = 0, in_all = 0;  // elements
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    in_all += tensor.shape.numel();
    if (tensor.dtype == DType::kBF16) in_bf16 += tensor.shape.numel();
  }
  return 2 * in_bf16 > in_all ? DType::kBF16 : DType::kF16;
}

}  // namespace

void check_devices(const PipelineConfig& config) {
  check_device(config.device_type);
  check_tp(config);
}

void check_config(const PipelineConfig& given) {
  const PipelineConfig config = with_defaults(given);
  require(!config.model_path.empty(), "model_path", "empty", "the path of a model folder or file");
  check_devices(config);
  kv_dtype(config.dtype);
  quantized_kv_dtype(*config.quant_policy);
  require(*config.session_len >= 0, "session_len", *config.session_len, "at least 1 (or 0: the model's)");
  require_between("max_batch_size", *config.max_batch_size, 1, kMaxBatch);
  if (const std::optional<double> count = config.cache_max_entry_count)
    require(*count > 0 && *count < 2147483648.0 && (*count < 1 || std::floor(*count) == *count),
            "cache_max_entry_count", *count,
            "a share of memory in (0, 1), or a whole number of blocks up to 2^31 - 1");
  require_between("cache_block_seq_len", *config.cache_block_seq_len, 1, kMaxBlockLen);
  require(*config.rope_scaling_factor == 0 || *config.rope_scaling_factor >= 1, "rope_scaling_factor",
          *config.rope_scaling_factor, "0 (off) or a factor of at least 1");
  require_between("max_prefill_token_num", *config.max_prefill_token_num, 1, kMaxStepTokens);
  require_between("num_tokens_per_iter", *config.num_tokens_per_iter, 0, kMaxStepTokens);
  require_between("max_prefill_iters", *config.max_prefill_iters, 1, kMaxStepTokens);
  require(config.num_threads >= 0 && config.num_threads <= kMaxThreads, "num_threads", config.num_threads,
          cat("1 to ", kMaxThreads, " (or 0: all CPUs)"));
  if (config.speculative) speculative_config(*config.speculative);
}

bool uses_cuda(const PipelineConfig& config) {
  if (config.device_type == "cpu") return false;
  const CudaStatus status = cuda_status();
  if (status.problem.empty()) return true;
  if (cuda_toolkit_version() > 0) LMD_LOG(kInfo, "models run on the CPU: ", status.problem);
  return false;
}

std::unique_ptr<Kernels> make_kernels(const PipelineConfig& config, const Checkpoint& checkpoint) {
  const auto threads = make_threads(config.num_threads);
  const CpuOptions on_cpu = {.rounded_activations = config.rounded_activations.value_or(
                                 rounds_activations(config.dtype, checkpoint))};
  if (!uses_cuda(config)) return make_cpu_kernels(threads, on_cpu);
  const DType dtype = cuda_dtype(config.dtype, checkpoint, cuda_status().devices.front());
  try {
    return make_cuda_kernels(threads, dtype, {.batch_invariant = config.deterministic});
  } catch (const Error& error) {
    if (config.device_type == "cuda") throw;
    LMD_LOG(kWarning, "models run on the CPU: ", error.what());
    return make_cpu_kernels(threads, on_cpu);
  }
}

std::vector<std::unique_ptr<Kernels>> make_rank_kernels(const PipelineConfig& config,
                                                        const Checkpoint& checkpoint) {
  const auto threads = make_threads(config.num_threads);
  std::vector<CudaDevice> devices = cuda_status().devices;
  devices.resize(std::min(devices.size(), static_cast<size_t>(config.tp)));
  const DType dtype =
      cuda_dtype(config.dtype, checkpoint, *std::ranges::min_element(devices, {}, capability));
  std::vector<std::unique_ptr<Kernels>> kernels;
  for (const CudaDevice& device : devices)
    kernels.push_back(
        make_cuda_kernels(threads, dtype, {.batch_invariant = config.deterministic, .device = device.index}));
  return kernels;
}

bool holds_integers(DType weights) { return is_quantized(weights) && weights != DType::kF8G64; }

bool rounds_activations(const std::string& dtype, const Checkpoint& checkpoint) {
  constexpr int64_t kLeastElements = 1'000'000'000;  // where most are not integers
  int64_t integers = 0, all = 0;                     // elements
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    all += tensor.shape.numel();
    if (holds_integers(tensor.dtype)) integers += tensor.shape.numel();
  }
  return dtype != "float32" && (2 * integers > all || all >= kLeastElements);
}

DType cuda_dtype(const std::string& dtype, const Checkpoint& checkpoint, const CudaDevice& device) {
  const DType wanted = dtype == "auto" ? checkpoint_dtype(checkpoint) : kv_dtype(dtype);
  if (wanted != DType::kBF16 || device.major >= 8) return wanted;
  const std::string why =
      cat(device.name, " has compute capability ", device.major, ".", device.minor, ", bfloat16 needs 8.0");
  if (dtype != "auto")
    throw Error(ErrorCode::kUnsupported,
                cat("not supported: dtype bfloat16, because ", why,
                    "; use dtype float16 (dtype='float16', --dtype float16) or auto, which chooses it"));
  LMD_LOG(kWarning, "the checkpoint is in bfloat16 and runs in float16: ", why,
          ". Numbers beyond 65504 do not fit float16; dtype float32 holds them");
  return DType::kF16;
}

DType kv_dtype(const std::string& dtype) {
  if (dtype == "auto" || dtype == "float16") return DType::kF16;
  if (dtype == "bfloat16") return DType::kBF16;
  if (dtype == "float32") return DType::kF32;
  throw Error(ErrorCode::kInvalidArgument,
              cat("dtype is ", dtype, "; expected auto, float16, bfloat16 or float32"));
}

std::optional<DType> quantized_kv_dtype(int quant_policy) {
  const auto* policy = std::ranges::find(kQuantPolicies, quant_policy, &QuantPolicy::number);
  require(policy != std::end(kQuantPolicies), "quant_policy", quant_policy, "0 (off), 4 (int4) or 8 (int8)");
  if (quant_policy != 0 && !policy->kv_dtype)
    throw Error(ErrorCode::kUnsupported, cat("not supported yet: quant_policy ", quant_policy, " (",
                                             policy->name, " keys and values); use 8 (int8), 4 (int4) or 0"));
  return policy->kv_dtype;
}

DType kv_dtype(const PipelineConfig& config, const Kernels& kernels) {
  if (const std::optional<DType> quantized = quantized_kv_dtype(*config.quant_policy)) return *quantized;
  return kernels.has_own_memory() ? kernels.activation_dtype() : kv_dtype(config.dtype);
}

void set_kv_pool(double cache_max_entry_count, size_t available_bytes, EngineConfig& config) {
  if (cache_max_entry_count >= 1) {
    config.num_blocks = static_cast<int64_t>(cache_max_entry_count);
  } else if (cache_max_entry_count > 0) {
    config.kv_memory_bytes =
        static_cast<size_t>(cache_max_entry_count * static_cast<double>(available_bytes));
  }
}

}  // namespace lmdeploy
