// Tiles of linear with quantised weights.
#include "lmdeploy/kernels/cuda/linear_tiles.cuh"

namespace lmdeploy::cuda {

void run_quant_tiles(const TileArgs& args, DType weight_dtype, cudaStream_t stream) {
  with_quant(weight_dtype, [&]<typename W>(Type<W>) { run_tiles<W>(args, stream); });
}

}  // namespace lmdeploy::cuda
