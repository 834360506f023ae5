// Results as lines for people and, if wanted, as lines of JSON.
#pragma once

#include <fstream>
#include <optional>
#include <ostream>
#include <string>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

/// What a result must reach.
struct Gate {
  std::string text;  // "at least 85 %"
  bool met = false;
};
Gate at_least(double share, double gate);
/// Of times.
Gate at_most(double seconds, double gate);

struct BenchResult {
  std::string block;
  JsonObject setting;       // what was measured: "model", "batch", ...
  JsonObject figures = {};  // what was found, units in the names
  std::string text = {};    // the same for people
  double limit_s = 0;       // what the measured ceilings allow; 0: none
  double seconds = 0;       // that are compared with it
  std::optional<Gate> gate = std::nullopt;
};

class BenchReport {
 public:
  /// `json_path`: "" for none. Throws Error(kIo) where it cannot be written.
  BenchReport(std::ostream& out, const std::string& json_path);

  void note(const std::string& line);
  /// What is measured from here on: for the message of an error.
  void begin(const std::string& block, const JsonObject& setting);
  const std::string& current() const { return current_; }
  void skip(const std::string& block, const JsonObject& setting, const std::string& why);
  void add(const BenchResult& result);
  /// How many gates were met, and which were not.
  void summarise();

 private:
  std::ostream& out_;
  std::ofstream json_;
  std::string current_;
  int num_gates_ = 0;
  std::string missed_;  // a line each
};

}  // namespace lmdeploy
