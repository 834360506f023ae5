#include "lmdeploy/text/grammar/work_limit.h"

#include "lmdeploy/core/error.h"

namespace lmdeploy::grammar {
namespace {

thread_local WorkLimit* current = nullptr;

}  // namespace

WorkLimit::WorkLimit(std::string_view where, uint64_t most) : where_(where), most_(most), outer_(current) {
  current = this;
}

WorkLimit::~WorkLimit() { current = outer_; }

void WorkLimit::spend(uint64_t steps) {
  if (current == nullptr) return;
  current->spent_ += steps;
  if (current->spent_ > current->most_)
    throw Error(ErrorCode::kInvalidArgument, cat(current->where_, ": found more than can be compiled in ",
                                                 current->most_, " steps; expected a simpler one"));
}

}  // namespace lmdeploy::grammar
