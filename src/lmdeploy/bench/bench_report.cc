#include "lmdeploy/bench/bench_report.h"

#include <algorithm>

#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

std::string value_text(const Json& value) {
  if (value.is_string()) return std::string(value.as_string());
  return value.is_double() ? cat(value.as_double()) : to_json_text(value);
}

// "decode model=llama-8b batch=16"
std::string name_of(const std::string& block, const JsonObject& setting) {
  std::string name = block;
  for (const auto& [key, value] : setting) name += cat(" ", std::string(key), "=", value_text(value));
  return name;
}

std::string percent(double share) { return cat(fixed(100 * share, 1), " %"); }

}  // namespace

Gate at_least(double share, double gate) {
  return {.text = cat("at least ", fixed(gate, 2)), .met = share >= gate};
}

Gate at_most(double seconds, double gate) {
  return {.text = cat("at most ", three_digits(gate * 1e6), " us"), .met = seconds <= gate};
}

BenchReport::BenchReport(std::ostream& out, const std::string& json_path) : out_(out) {
  if (json_path.empty()) return;
  json_.open(json_path);
  if (!json_) throw Error(ErrorCode::kIo, cat("--json ", json_path, ": the file cannot be written"));
}

void BenchReport::note(const std::string& line) { out_ << line << std::endl; }

void BenchReport::begin(const std::string& block, const JsonObject& setting) {
  current_ = name_of(block, setting);
}

void BenchReport::skip(const std::string& block, const JsonObject& setting, const std::string& why) {
  note(cat(name_of(block, setting), ": skipped, ", why));
}

void BenchReport::add(const BenchResult& result) {
  const std::string name = name_of(result.block, result.setting);
  std::string line = cat(name, ": ", result.text);
  JsonObject json = {{"block", result.block}};
  for (const auto& [key, value] : result.setting) json[key] = value;
  for (const auto& [key, value] : result.figures) json[key] = value;
  if (result.limit_s > 0) {
    const double share = result.limit_s / result.seconds;
    line += cat("; limit ", three_digits(result.limit_s * 1e3), " ms, ", percent(share), " of it");
    json["limit_s"] = result.limit_s;
    json["share"] = share;
  }
  if (result.gate) {
    ++num_gates_;
    line += cat("; gate ", result.gate->text, ": ", result.gate->met ? "met" : "MISSED");
    json["gate"] = result.gate->text;
    json["gate_met"] = result.gate->met;
    if (!result.gate->met) missed_ += cat("  ", line, "\n");
  }
  note(line);
  if (json_.is_open()) json_ << to_json_text(json) << std::endl;
}

void BenchReport::summarise() {
  const auto num_missed = std::ranges::count(missed_, '\n');
  note(
      cat("gates: ", num_gates_ - num_missed, " of ", num_gates_, " met", num_missed > 0 ? "; missed:" : ""));
  out_ << missed_ << std::flush;
}

}  // namespace lmdeploy
