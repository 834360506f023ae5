// Tracing, files and the table.
#include "lmdeploy/bench/layer_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <ostream>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/safetensors.h"
#include "lmdeploy/models/step_runner.h"

namespace lmdeploy {
namespace {

std::unique_ptr<Kernels> make_backend(const std::string& name) {
  const auto threads = std::make_shared<ThreadPool>();
  if (name == "ref") return make_ref_kernels(threads);
  if (name == "cpu") return make_cpu_kernels(threads);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    if (name == cat("cuda-", dtype)) return make_cuda_kernels(threads, dtype);
  throw Error(ErrorCode::kInvalidArgument,
              cat("back end \"", name, "\" is not known (known: ref, cpu, cuda-f32, cuda-f16, cuda-bf16)"));
}

// A matrix of f32, whatever the dtype and the leading ones.
Tensor as_matrix(ConstTensorView values) {
  Tensor out(DType::kF32, {values.rows(), values.cols()});
  for (int64_t r = 0; r < values.rows(); ++r)
    for (int64_t c = 0; c < values.cols(); ++c) out.view().set(r, c, values.at(r, c));
  return out;
}

void check_ids(const std::vector<int>& ids, int64_t vocab_size) {
  for (const int id : ids)
    if (id < 0 || id >= vocab_size)
      throw Error(ErrorCode::kInvalidArgument, cat("token id ", id, ", expected 0 to ", vocab_size - 1));
  if (ids.empty()) throw Error(ErrorCode::kInvalidArgument, "no token ids");
}

const LayerTrace::Entry* find(const LayerTrace& trace, const std::string& name) {
  const auto found = std::find_if(trace.entries.begin(), trace.entries.end(),
                                  [&](const LayerTrace::Entry& entry) { return entry.name == name; });
  return found == trace.entries.end() ? nullptr : &*found;
}

struct Difference {
  double largest = 0;  // of the judge
  double worst = 0;
  int64_t row = 0, col = 0;

  // NaN and infinity where the judge has none count as the largest departure.
  double share() const { return worst == 0 ? 0 : worst / std::max(largest, 1e-30); }
};

Difference compare(ConstTensorView want, ConstTensorView got) {
  Difference d;
  for (int64_t r = 0; r < want.rows(); ++r) {
    for (int64_t c = 0; c < want.cols(); ++c) {
      d.largest = std::max(d.largest, std::abs(want.at(r, c)));
      double off = std::abs(got.at(r, c) - want.at(r, c));
      if (!std::isfinite(off)) off = HUGE_VAL;
      if (off > d.worst) d.worst = off, d.row = r, d.col = c;
    }
  }
  return d;
}

std::string line(const std::string& name, const Difference& d) {
  char text[160];
  std::snprintf(text, sizeof(text), "%-28s %12.5g %12.3g %10.2g   row %lld, column %lld", name.c_str(),
                d.largest, d.worst, d.share(), static_cast<long long>(d.row), static_cast<long long>(d.col));
  return text;
}

}  // namespace

LayerTrace trace_layers(const std::string& path, const std::string& backend, const std::vector<int>& ids,
                        std::optional<DType> kv_dtype) {
  const std::unique_ptr<Kernels> kernels = make_backend(backend);
  LayerTrace trace = {backend, {}};
  const auto count = static_cast<int64_t>(ids.size());
  LoadOptions options = {.max_step_tokens = std::max<int64_t>(count, 1),
                         .max_logit_rows = std::max<int64_t>(count, 1)};
  options.observer = [&](const std::string& name, ConstTensorView values) {
    trace.entries.push_back({name, as_matrix(values)});
  };
  const auto checkpoint = open_checkpoint(path);
  const auto model = load_model(*checkpoint, *kernels, options);
  check_ids(ids, model->spec().vocab_size);
  StepRunner runner(*model, *kernels,
                    {.kv_dtype = kv_dtype.value_or(kernels->activation_dtype()), .max_tokens = count});
  runner.start(0, count);
  const StepRunner::Chunk chunk = {.ids = ids, .num_logits = count};
  runner.step({&chunk, 1});
  return trace;
}

LayerTrace read_trace(const std::string& file) {
  const SafetensorsFile content(file);
  LayerTrace trace = {file, {}};
  for (const SafetensorsTensor& tensor : content.tensors()) {
    if (!is_float(tensor.dtype)) continue;
    trace.entries.push_back(
        {std::string(tensor.name), as_matrix(ConstTensorView(tensor.data, tensor.dtype, tensor.shape))});
  }
  return trace;
}

void write_trace(const std::string& file, const LayerTrace& trace) {
  std::vector<NamedTensor> tensors;
  for (const LayerTrace::Entry& entry : trace.entries) tensors.push_back({entry.name, entry.values});
  write_safetensors(file, tensors);
}

bool print_comparison(std::ostream& out, const LayerTrace& judge, const LayerTrace& trace, double tolerance) {
  out << trace.source << " against " << judge.source
      << "\ntensor                            largest   difference      share   where\n";
  bool departed = false;
  int64_t compared = 0;
  for (const LayerTrace::Entry& entry : trace.entries) {
    const LayerTrace::Entry* want = find(judge, entry.name);
    if (want == nullptr) continue;
    if (want->values.shape() != entry.values.shape())
      throw Error(ErrorCode::kInvalidData,
                  cat(judge.source, ": \"", entry.name, "\" is ", want->values.shape(), ", ", trace.source,
                      " has ", entry.values.shape()));
    const Difference d = compare(want->values, entry.values);
    const bool first = !departed && !(d.share() <= tolerance);
    departed = departed || first;
    out << line(entry.name, d) << (first ? "   <- the first that departs" : "") << '\n';
    ++compared;
  }
  if (compared == 0)
    throw Error(ErrorCode::kInvalidData,
                cat(judge.source, " and ", trace.source, " have no tensor in common"));
  out << (departed ? "" : cat("all within ", tolerance, " of the largest value\n"));
  return !departed;
}

}  // namespace lmdeploy
