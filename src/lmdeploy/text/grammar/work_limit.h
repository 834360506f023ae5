// Bounds the time that one schema may take, in steps instead of seconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lmdeploy::grammar {

/// While it lives, the steps of this thread are counted; beyond `most` spend() throws Error(kInvalidArgument)
/// beginning with `where`.
class WorkLimit {
 public:
  WorkLimit(std::string_view where, uint64_t most);
  ~WorkLimit();
  WorkLimit(const WorkLimit&) = delete;
  WorkLimit& operator=(const WorkLimit&) = delete;

  static void spend(uint64_t steps);

 private:
  const std::string where_;
  const uint64_t most_;
  uint64_t spent_ = 0;
  WorkLimit* const outer_;
};

}  // namespace lmdeploy::grammar
