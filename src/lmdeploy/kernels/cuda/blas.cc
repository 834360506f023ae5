// cuBLASLt through dlopen, with a plan for each shape that has been met.
#include "lmdeploy/kernels/cuda/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <optional>
#include <unordered_map>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/cuda/cuda_check.h"
#include "lmdeploy/kernels/cuda/device.h"

namespace lmdeploy::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int64_t kAlignment = 16;
constexpr size_t kMostPlans = 4096;

void check_blas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::kInternal, cat("cuBLASLt: ", what, ": status ", static_cast<int>(status)));
}

void* open_library() {
  constexpr const char* kNames[] = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"};
  std::string problem;
  for (const char* name : kNames) {
    if (void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    if (problem.empty()) problem = ::dlerror();
  }
  throw Error(ErrorCode::kUnsupported, cat("the CUDA back end needs cuBLASLt of CUDA 13: ", problem));
}

// The functions that are called.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;

  Library() {
    void* library = open_library();
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      if (function == nullptr) throw Error(ErrorCode::kUnsupported, cat("cuBLASLt has no ", name));
    };
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(matmul, "cublasLtMatmul");
    find(desc_create, "cublasLtMatmulDescCreate");
    find(desc_destroy, "cublasLtMatmulDescDestroy");
    find(desc_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
  }
};

const Library& library() {
  static const Library opened;
  return opened;
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF8E4M3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_32F;
  }
}

// Row-major out = x * weight^T is column-major out^T = weight * x^T: cuBLAS' A is the weight, its B is x.
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const MatmulShape& s) {
    const Library& lt = library();
    check_blas(lt.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a product");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    check_blas(lt.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)), "set TRANSA");
    const auto rows = static_cast<uint64_t>(s.rows), cols = static_cast<uint64_t>(s.cols),
               tokens = static_cast<uint64_t>(s.tokens);
    check_blas(lt.layout_create(&weight_, data_type(s.type), cols, rows, s.cols), "describe a weight");
    check_blas(lt.layout_create(&x_, data_type(s.type), cols, tokens, s.x_stride), "describe x");
    check_blas(lt.layout_create(&out_, data_type(s.out_type), rows, tokens, s.out_stride), "describe out");
    choose(handle);
  }
  ~Plan() {
    const Library& lt = library();
    lt.layout_destroy(out_);
    lt.layout_destroy(x_);
    lt.layout_destroy(weight_);
    lt.desc_destroy(desc_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  bool run(cublasLtHandle_t handle, bool accumulate, void* out, const void* x, const void* weight,
           std::byte* workspace, cudaStream_t stream) const {
    if (!algorithm_) return false;
    const float one = 1, beta = accumulate ? 1 : 0;
    check_blas(library().matmul(handle, desc_, &one, weight, weight_, x, x_, &beta, out, out_, out, out_,
                                &*algorithm_, workspace, kWorkspaceBytes, stream),
               "multiply");
    return true;
  }

 private:
  void choose(cublasLtHandle_t handle) {
    const Library& lt = library();
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(lt.preference_create(&preference), "prefer");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      check_blas(lt.preference_set(preference, name, &value, sizeof(value)), "prefer");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Partial sums meet in f32 only, in a fixed order.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(name, static_cast<uint32_t>(kAlignment));
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    const cublasStatus_t status =
        lt.heuristic(handle, desc_, weight_, x_, out_, out_, preference, 1, &result, &found);
    lt.preference_destroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && found == 1) algorithm_ = result.algo;
  }

  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr, x_ = nullptr, out_ = nullptr;
  std::optional<cublasLtMatmulAlgo_t> algorithm_;
};

struct HashShape {
  size_t operator()(const MatmulShape& s) const {
    size_t hash = 0;
    for (const int64_t value : {s.tokens, s.rows, s.cols, s.x_stride, s.out_stride,
                                static_cast<int64_t>(s.type) * 256 + static_cast<int64_t>(s.out_type)})
      hash = hash * 1000003 + static_cast<size_t>(value);
    return hash;
  }
};

}  // namespace

class Blas::Impl {
 public:
  Impl() : workspace_(kWorkspaceBytes, device_allocator()) {
    check_blas(library().create(&handle_), "start");
  }
  ~Impl() { library().destroy(handle_); }

  bool multiply(MatmulShape shape, void* out, const void* x, const void* weight, cudaStream_t stream) {
    const bool accumulate = std::exchange(shape.accumulate, false);  // one plan for both
    if (plans_.size() >= kMostPlans && !plans_.contains(shape)) plans_.clear();
    std::unique_ptr<Plan>& plan = plans_[shape];
    if (plan == nullptr) plan = std::make_unique<Plan>(handle_, shape);
    return plan->run(handle_, accumulate, out, x, weight, workspace_.data(), stream);
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  std::unordered_map<MatmulShape, std::unique_ptr<Plan>, HashShape> plans_;
};

Blas::Blas() : impl_(std::make_unique<Impl>()) {}
Blas::~Blas() = default;

bool Blas::takes(const MatmulShape& s, const void* out, const void* x, const void* weight) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % kAlignment == 0; };
  const auto whole = [](int64_t elements, DType dtype) {
    return elements * block_bytes(dtype) % kAlignment == 0;
  };
  return aligned(out) && aligned(x) && aligned(weight) && whole(s.cols, s.type) &&
         whole(s.x_stride, s.type) && whole(s.out_stride, s.out_type);
}

bool Blas::multiply(const MatmulShape& shape, void* out, const void* x, const void* weight,
                    cudaStream_t stream) {
  return impl_->multiply(shape, out, x, weight, stream);
}

}  // namespace lmdeploy::cuda
