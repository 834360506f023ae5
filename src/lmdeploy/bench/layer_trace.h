// What each layer of a model computes, to find the first one that departs from a judge.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

/// Tensors of one forward pass in the order of computation; names as LoadOptions::observer gives them.
struct LayerTrace {
  struct Entry {
    std::string name;
    Tensor values;  // [tokens, cols] f32
  };
  std::string source;  // the back end or the file
  std::vector<Entry> entries;
};

/// Runs `ids` through the model at `path` on "ref" or "cpu", with keys and values in `kv_dtype` or as wide as
/// activations. Throws Error as open_checkpoint() and
/// load_model() do, and kInvalidArgument for another back end or an id that the vocabulary does not have.
LayerTrace trace_layers(const std::string& path, const std::string& backend, const std::vector<int>& ids,
                        std::optional<DType> kv_dtype = std::nullopt);

/// A safetensors file with a tensor for each name; a file from elsewhere may hold fewer. Leading dimensions
/// of 1 are dropped.
LayerTrace read_trace(const std::string& file);
void write_trace(const std::string& file, const LayerTrace& trace);

/// A line for each tensor that both have: largest value, largest difference, share; the first one above
/// `tolerance` is marked. True when none is.
bool print_comparison(std::ostream& out, const LayerTrace& judge, const LayerTrace& trace, double tolerance);

}  // namespace lmdeploy
