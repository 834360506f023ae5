// Tiles of linear with integer weights.
#include "lmdeploy/kernels/cuda/linear_tiles.cuh"

namespace lmdeploy::cuda {

void run_integer_tiles(const TileArgs& args, const IntegerFormat& format, cudaStream_t stream) {
  with_integers(format, [&]<typename W>(Type<W>) { run_tiles<W>(args, stream); });
}

}  // namespace lmdeploy::cuda
