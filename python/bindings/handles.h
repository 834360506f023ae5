// Holders that Python objects keep native objects in.
#pragma once

#include <unistd.h>

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "bindings/bindings.h"

namespace lmdeploy::python {

struct TokenizerRef {
  std::shared_ptr<const Tokenizer> impl;
};

struct ChatTemplateRef {
  std::shared_ptr<const ChatTemplate> impl;
};

/// A pipeline that may be held by several Python objects. After fork() the engine thread exists in the parent
/// only, and may have held any mutex at that moment: check_owner() throws in the child, before anything there
/// waits, and the native object is leaked instead of being destroyed.
class PipelineRef {
 public:
  explicit PipelineRef(const PipelineConfig& config)
      : owner_(getpid()), impl_(std::make_unique<Pipeline>(config)) {}
  /// Waits for the engine's thread without the GIL, which a logits processor there may want; when it is that
  /// thread (a processor, or the garbage collector in it, let go of the last reference), another one waits.
  ~PipelineRef() {
    if (!in_owner()) {
      static_cast<void>(impl_.release());
    } else if (impl_->on_engine_thread()) {
      std::thread([impl = std::move(impl_)] {}).detach();
    } else {
      const GilRelease release;
      impl_.reset();
    }
  }
  PipelineRef(const PipelineRef&) = delete;
  PipelineRef& operator=(const PipelineRef&) = delete;

  bool in_owner() const { return owner_ == getpid(); }
  void check_owner() const {
    if (in_owner()) return;
    throw Error(
        ErrorCode::kClosed,
        cat("this pipeline was opened in process ", owner_, " and cannot be used in its fork ", getpid(),
            ": open it in the child, or start the child with the multiprocessing method \"spawn\""));
  }
  /// For callers that wait for the engine's thread, or for somebody who does.
  void check_waiter() const {
    check_owner();
    if (impl_->on_engine_thread())
      throw Error(ErrorCode::kInvalidArgument,
                  "a logits processor cannot use the pipeline that it runs in: it would wait for itself");
  }
  Pipeline& get() const {
    check_owner();
    return *impl_;
  }
  /// Calls use(Engine&) while close() is kept waiting; `use` must not block.
  template <typename Use>
  auto with_engine(Use use) const {
    check_waiter();
    const std::shared_lock lock(closing_);
    return use(impl_->engine());
  }
  void close() const {
    if (!in_owner()) return;
    check_waiter();
    const std::unique_lock lock(closing_);
    impl_->close();
  }

 private:
  pid_t owner_;
  std::unique_ptr<Pipeline> impl_;
  mutable std::shared_mutex closing_;
};

}  // namespace lmdeploy::python
