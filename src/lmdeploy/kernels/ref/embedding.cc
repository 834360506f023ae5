// Reference of Kernels::embedding.
#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {

void RefKernels::do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const {
  const RefWeight& rows = ref_weight("embedding", table);
  checks::index_values("embedding", "ids", ids, table.rows());
  for_rows(out.rows(), [&](int64_t t) {
    std::vector<double> row(static_cast<size_t>(table.cols()));
    rows.read_row(static_cast<int64_t>(ids.at(t)), row.data());
    for (int64_t k = 0; k < table.cols(); ++k) out.set(t, k, row[static_cast<size_t>(k)]);
  });
}

}  // namespace lmdeploy
