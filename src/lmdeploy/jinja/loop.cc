#include "lmdeploy/jinja/loop.h"

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/builtin.h"
#include "lmdeploy/jinja/interpreter.h"

namespace lmdeploy::jinja {
namespace {

// loop.cycle and loop.changed, bound to their loop.
class LoopMethod final : public Object {
 public:
  LoopMethod(std::shared_ptr<LoopState> loop, bool cycle)
      : Object(Value(ObjectPtr(loop))), loop_(std::move(loop)), cycle_(cycle) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments arguments) override {
    if (cycle_) return loop_->cycle(arguments.positional);
    return loop_->changed(std::move(arguments.positional), interpreter);
  }

 private:
  std::shared_ptr<LoopState> loop_;
  bool cycle_;
};

}  // namespace

std::optional<Value> LoopState::next() {
  std::optional<Value> item = peek();
  peeked_ = false;
  after_.reset();
  if (!item) return item;
  ++num_started_;
  before_ = std::exchange(current_, item);
  return item;
}

const std::optional<Value>& LoopState::peek() const {
  if (!peeked_) {
    after_ = items_();
    peeked_ = true;
  }
  return after_;
}

// Items that a filter or generator has yet to yield are fetched to be counted.
size_t LoopState::length() const {
  if (size_) return *size_;
  std::vector<Value> rest;
  if (peek()) rest.push_back(*after_);
  if (!rest.empty())
    while (std::optional<Value> item = items_()) rest.push_back(std::move(*item));
  size_ = num_started_ + rest.size();
  peeked_ = false;
  after_.reset();
  items_ = jinja::iterate(Value::list(std::move(rest)));
  return *size_;
}

std::optional<Value> LoopState::attribute(Interpreter&, std::string_view name) {
  const size_t index0 = num_started_ - 1;
  if (name == "index") return Value::size(index0 + 1);
  if (name == "index0") return Value::size(index0);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(!peek().has_value());
  if (name == "length") return Value::size(length());
  if (name == "revindex") return Value::size(length() - index0);
  if (name == "revindex0") return Value::size(length() - index0 - 1);
  if (name == "depth") return Value(Int{depth_ + 1});
  if (name == "depth0") return Value(Int{depth_});
  if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *peek() : Value::undefined("there is no next item");
  if (name == "cycle" || name == "changed")
    return Value(ObjectPtr(std::make_shared<LoopMethod>(shared_from_this(), name == "cycle")));
  return std::nullopt;
}

Value LoopState::call(Interpreter&, Arguments arguments) {
  if (!recurse_) throw Failure("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.positional.size() != 1 || !arguments.named.empty())
    throw Failure("loop() takes the items of the inner loop");
  return recurse_(arguments.positional[0], depth_ + 1);
}

Value LoopState::cycle(const std::vector<Value>& values) const {
  if (values.empty()) throw Failure("no items for cycling given");
  return values[(num_started_ - 1) % values.size()];
}

bool LoopState::changed(std::vector<Value> values, Interpreter& interpreter) {
  if (last_changed_ && equal(Value::tuple(*last_changed_), Value::tuple(values), interpreter.budget()))
    return false;
  last_changed_ = std::move(values);
  return true;
}

}  // namespace lmdeploy::jinja
