// Quotas of users: one Error, or a scheduler that gives out each request once.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "json_mutation.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/serve/qos/qos_config.h"
#include "lmdeploy/serve/qos/qos_scheduler.h"

namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

/// One request of each user, and of one that nobody knows.
void run(const lmdeploy::QosConfig& config) {
  lmdeploy::QosScheduler scheduler(config, {2, 0});
  uint64_t request = 0;
  const auto enqueue = [&](const std::string& user) {
    try {
      expect(scheduler.enqueue(++request, user));
    } catch (const lmdeploy::Error&) {
      --request;
    }
  };
  for (const lmdeploy::QosGroup& group : config.groups)
    for (const lmdeploy::QosUser& user : group.users) enqueue(user.id);
  enqueue("nobody knows");
  std::set<uint64_t> begun;
  while (const auto next = scheduler.next({})) {
    expect(begun.insert(*next).second);
    scheduler.release(*next);
  }
  expect(begun.size() == request && scheduler.num_waiting() == 0 && scheduler.num_running() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::JsonInputs inputs;
  try {
    run(lmdeploy::parse_qos_config(inputs.take(data, size), "input"));
  } catch (const lmdeploy::Error&) {
  }
  return 0;
}
