// The kinds of ResponseStream: of an engine request, of a prompt that was turned away, of a chat turn.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/pipeline/pipeline.h"
#include "lmdeploy/pipeline/text_stream.h"

namespace lmdeploy {

/// Pulls outputs from the engine and turns them into text on the reader's thread.
class EngineStream : public ResponseStream {
 public:
  EngineStream(std::unique_ptr<RequestHandle> handle, TextStream text);

  std::optional<Response> next(std::chrono::milliseconds timeout) override;
  bool finished() const override { return text_.finished(); }
  void cancel() override { handle_->cancel(); }
  void set_notify(std::function<void()> notify) override { handle_->set_notify(std::move(notify)); }
  /// Tokens that the engine's session held after the last output read.
  int64_t session_tokens() const { return session_tokens_; }

 private:
  std::unique_ptr<RequestHandle> handle_;
  TextStream text_;
  int64_t session_tokens_ = 0;
};

/// Has one piece, which says why there is no answer.
class RejectedStream : public ResponseStream {
 public:
  explicit RejectedStream(Response reason) : reason_(std::move(reason)) {}

  std::optional<Response> next(std::chrono::milliseconds timeout) override;
  bool finished() const override { return finished_; }
  void cancel() override {}
  void set_notify(std::function<void()> notify) override {
    if (notify) notify();
  }

 private:
  Response reason_;
  bool finished_ = false;
};

/// Passes an EngineStream on and hands the whole turn over when it has ended.
class ChatStream : public ResponseStream {
 public:
  /// The whole answer, and the tokens that the engine's session held then.
  using OnFinished = std::function<void(Response answer, int64_t session_tokens)>;
  ChatStream(std::unique_ptr<EngineStream> stream, OnFinished on_finished);

  std::optional<Response> next(std::chrono::milliseconds timeout) override;
  bool finished() const override { return stream_->finished(); }
  void cancel() override { stream_->cancel(); }
  void set_notify(std::function<void()> notify) override { stream_->set_notify(std::move(notify)); }

 private:
  std::unique_ptr<EngineStream> stream_;
  OnFinished on_finished_;
  Response answer_;
};

/// Appends a stream's next piece to what it gave before.
void append_piece(Response& whole, const Response& piece);

}  // namespace lmdeploy
