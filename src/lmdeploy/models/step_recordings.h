// Steps that come again and again are recorded once, where the back end can.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

class StepRecordings {
 public:
  /// What ops depend on besides the content of memory: counts and addresses.
  using Key = std::vector<int64_t>;
  /// A recording of a large model takes some MB of a GPU.
  static constexpr size_t kMostKept = 32;
  /// Making one takes some ms in which the device has nothing to do: that is for steps that keep coming.
  static constexpr int64_t kRunsBefore = 7;

  explicit StepRecordings(const Kernels& kernels) : kernels_(kernels) {}
  /// Runs `ops`, which does the same whenever `key` is the same: recorded when the key comes again after
  /// kRunsBefore times, and from then on from the recording.
  void run(const Key& key, const std::function<void()>& ops);

 private:
  struct Entry {
    Key key;
    std::unique_ptr<Recording> recording;
    int64_t num_runs = 0, last_run = 0;
  };
  Entry& find(const Key& key);

  const Kernels& kernels_;
  std::vector<Entry> entries_;
  int64_t runs_ = 0;
};

}  // namespace lmdeploy
