// Matrices that the copy engine of a multiprocessor (TMA) takes boxes of.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace lmdeploy::cuda {

/// A matrix [rows, cols] of 16-bit elements as copy_box() takes it, in boxes of 64 columns and box_rows rows
/// that lie in shared memory as wgmma.cuh's SwizzledMatrix wants them; zeros where the matrix ends. Its rows
/// are whole 16 bytes. From sm_90 on.
CUtensorMap describe_matrix(const void* data, bool f16, int64_t rows, int64_t cols, int64_t box_rows);

}  // namespace lmdeploy::cuda
