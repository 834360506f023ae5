// The `loop` variable: position, look-ahead, cycle, changed, recursion.
#pragma once

#include <functional>

#include "lmdeploy/jinja/value.h"

namespace lmdeploy::jinja {

class LoopState final : public Object, public std::enable_shared_from_this<LoopState> {
 public:
  /// Runs the loop again over other items, one level deeper, and returns what it prints.
  using Recurse = std::function<Value(const Value& iterable, int depth)>;
  /// `items` yields what the loop's filter let through; `size`: their number, where it is known beforehand.
  LoopState(const Value& iterable, Iterator items, std::optional<size_t> size, int depth, Recurse recurse)
      : Object(iterable),
        items_(std::move(items)),
        size_(size),
        depth_(depth),
        recurse_(std::move(recurse)) {}

  /// Moves to the next item.
  std::optional<Value> next();

  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override;
  std::optional<size_t> size() const override { return length(); }
  bool callable() const override { return recurse_ != nullptr; }
  Value call(Interpreter& interpreter, Arguments arguments) override;

  Value cycle(const std::vector<Value>& values) const;
  /// Whether `values` differ from those of the last call.
  bool changed(std::vector<Value> values, Interpreter& interpreter);

 private:
  const std::optional<Value>& peek() const;
  size_t length() const;

  // Looking ahead does not change what a template can see.
  mutable Iterator items_;
  mutable std::optional<size_t> size_;
  mutable bool peeked_ = false;
  mutable std::optional<Value> after_;
  std::optional<Value> current_, before_;
  std::optional<std::vector<Value>> last_changed_;
  size_t num_started_ = 0;
  int depth_;
  Recurse recurse_;
};

}  // namespace lmdeploy::jinja
