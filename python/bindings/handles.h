// Holders that Python objects keep native objects in.
#pragma once

#include <unistd.h>

#include <memory>
#include <mutex>
#include <shared_mutex>
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
  ~PipelineRef() {
    if (!in_owner()) static_cast<void>(impl_.release());
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
  Pipeline& get() const {
    check_owner();
    return *impl_;
  }
  /// Calls use(Engine&) while close() is kept waiting; `use` must not block.
  template <typename Use>
  auto with_engine(Use use) const {
    check_owner();
    const std::shared_lock lock(closing_);
    return use(impl_->engine());
  }
  void close() const {
    if (!in_owner()) return;
    const std::unique_lock lock(closing_);
    impl_->close();
  }

 private:
  pid_t owner_;
  std::unique_ptr<Pipeline> impl_;
  mutable std::shared_mutex closing_;
};

}  // namespace lmdeploy::python
