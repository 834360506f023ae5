// Python's operators on values.
#pragma once

#include "lmdeploy/jinja/ast.h"
#include "lmdeploy/jinja/value.h"

namespace lmdeploy::jinja {

/// Bounds the work of one rendering, so that a hostile template ends in a Failure and never hangs.
class Budget {
 public:
  /// One unit: an evaluated node, a visited item, 32 bytes made or 16 bytes looked through.
  static constexpr size_t kMaxUnits = 10'000'000;
  void charge(size_t units) {
    used_ += units;
    if (used_ > kMaxUnits) throw Failure("the template takes more than 10 million steps");
  }
  /// Charges for the size of a value that was just made.
  void charge_for(const Value& made);
  /// Charges for reading all of a text; nothing for other values, whose items are charged one by one.
  void charge_reading(const Value& value);

 private:
  size_t used_ = 0;
};

bool equal(const Value& a, const Value& b, Budget& budget);
/// a < b. Throws Failure where Python has no order for the two.
bool less(const Value& a, const Value& b, Budget& budget);
bool compare(CompareOp op, const Value& a, const Value& b, Budget& budget);
/// item in container
bool contains(const Value& container, const Value& item, Budget& budget);
Value arithmetic(BinaryOp op, const Value& a, const Value& b);
Value negate(const Value& value);
/// Bounds are integers or none.
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step);

/// Text or markup; markup as it is, anything else as str() with & < > ' " escaped.
Value escape(const Value& value);

}  // namespace lmdeploy::jinja
