// Tiles of linear with float weights.
#include "lmdeploy/kernels/cuda/linear_tiles.cuh"

namespace lmdeploy::cuda {

void run_float_tiles(const TileArgs& args, DType weight_dtype, cudaStream_t stream) {
  with_type(weight_dtype, [&]<typename W>(Type<W>) { run_tiles<W>(args, stream); });
}

}  // namespace lmdeploy::cuda
