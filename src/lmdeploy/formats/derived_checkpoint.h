// A checkpoint made from another one: some of its tensors as they are, others computed when they are asked
// for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lmdeploy/core/tensor.h"
#include "lmdeploy/formats/checkpoint.h"

namespace lmdeploy {

/// A tensor that is computed from stored ones.
struct Recipe {
  TensorInfo info;
  std::vector<size_t> sources;  // tensors of the base that belong to it and to no other
  /// Writes all elements, rows one after another. Throws Error(kInvalidData) for stored values that are no
  /// such tensor's.
  std::function<void(const Checkpoint& base, std::byte* out)> make;
};

/// Thread-safe. A computed tensor lives until drop().
class DerivedCheckpoint : public Checkpoint {
 public:
  ConstTensorView tensor(size_t index) const override;
  void drop(size_t index) const override;

 protected:
  /// Takes over path and configs of the base.
  explicit DerivedCheckpoint(std::unique_ptr<Checkpoint> base);
  const Checkpoint& base() const { return *base_; }
  /// Both throw Error(kInvalidData) when there is a tensor of that name.
  void add_stored(size_t source, const std::string& name);
  void add_computed(Recipe recipe);

 private:
  struct Entry {
    size_t source = 0;  // when there is no recipe
    std::unique_ptr<const Recipe> recipe;
  };
  void add(TensorInfo info, Entry entry);

  std::unique_ptr<Checkpoint> base_;
  std::vector<Entry> entries_;  // as tensors_
  mutable std::mutex mutex_;
  mutable std::map<size_t, Tensor> made_;
};

}  // namespace lmdeploy
