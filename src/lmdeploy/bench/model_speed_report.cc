// The figures of model_bench as a table and as JSON.
#include <filesystem>

#include "lmdeploy/bench/model_speed.h"
#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/formats/output_file.h"

namespace lmdeploy {
namespace {

constexpr size_t kName = 18, kRate = 21, kNumber = 9;

double memory_sum(const MemoryFigures& memory) { return memory.weights + memory.kv_pool + memory.buffers; }

std::string percent(double share) { return cat(fixed(100 * share, 0), " %"); }

JsonObject json_of(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

JsonObject json_of(const Samples& samples) {
  JsonObject object = json_of(spread_of(samples));
  JsonArray all;
  for (const double sample : samples) all.emplace_back(sample);
  object["samples"] = std::move(all);
  return object;
}

JsonObject json_of(const ModelFigures& figures, const ModelCase& c) {
  return {{"kind", c.prefill ? "prefill" : "decode"},
          {"batch", c.batch},
          {"tokens", c.tokens},
          {"forward_tokens_per_s", json_of(c.forward)},
          {"engine_tokens_per_s", json_of(c.engine)},
          {"engine_share", json_of(c.engine_share())},
          {"weight_bytes_per_token", c.work.weight_bytes / c.all_tokens()},
          {"kv_bytes_per_token", c.work.kv_bytes / c.all_tokens()},
          {"flops_per_token", c.work.flops / c.all_tokens()},
          {"read_share", json_of(c.read_share())},
          {"dot_share", json_of(c.dot_share(figures.numbers))}};
}

JsonObject json_of(const ModelFigures& f) {
  JsonArray cases;
  for (const ModelCase& c : f.cases) cases.emplace_back(json_of(f, c));
  return {{"model", f.name},
          {"architecture", f.architecture},
          {"backend", f.backend},
          {"kv_dtype", std::string(to_string(f.kv_dtype))},
          {"threads", f.num_threads},
          {"dot_limit", std::string(to_string(f.numbers))},
          {"detokenised", f.has_tokenizer},
          {"other_cpus_busy", f.other_cpus},
          {"load",
           {{"load_s", f.load.load_s},
            {"first_token_s", f.load.first_token_s},
            {"bytes", f.load.bytes},
            {"copy_s", f.load.copy_s}}},
          {"memory",
           {{"weight_bytes", f.memory.weights},
            {"kv_pool_bytes", f.memory.kv_pool},
            {"buffer_bytes", f.memory.buffers},
            {"peak_growth_bytes", f.memory.peak_growth}}},
          {"cases", std::move(cases)}};
}

/// Empty files and our own, which are small.
bool may_be_replaced(const std::string& path) {
  constexpr uintmax_t kMostBytes = 16 << 20;
  const uintmax_t size = std::filesystem::file_size(path);
  if (size == 0 || size > kMostBytes) return size == 0;
  try {
    const Json json = read_json_file(path);
    return json.is_object() && json.as_object().contains("cases");
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string model_head(const ModelFigures& f) {
  const LoadFigures& load = f.load;
  const MemoryFigures& memory = f.memory;
  const double sum = memory_sum(memory);
  return cat("\n", f.name, ": ", f.architecture, " on ", f.backend, ", KV cache ", f.kv_dtype, ", ",
             f.num_threads, f.num_threads == 1 ? " thread" : " threads",
             f.has_tokenizer ? "" : "; no tokenizer: the engine's figures are without detokenising",
             "\nload ", three_digits(load.load_s), " s, to the first token ",
             three_digits(load.first_token_s), " s: ", three_digits(load.first_token_s / load.copy_s),
             " times a copy of the same ", bytes_text(load.bytes), " to fresh memory (",
             three_digits(load.copy_s), " s)", "\nresident: grew by ", bytes_text(memory.peak_growth),
             " at most, ", percent(memory.peak_growth / sum), " of weights ", bytes_text(memory.weights),
             " + KV pool ", bytes_text(memory.kv_pool), " + buffers ", bytes_text(memory.buffers),
             "\nthese are the figures of --deterministic too: on the CPU no row depends on the batch\n");
}

std::string case_head() {
  return TextLine()
      .left("tokens/s", kName)
      .right("forward pass", kRate)
      .right("engine", kRate)
      .right("engine/fwd", kNumber + 2)
      .right("MB/token", kNumber)
      .right("of read", kNumber)
      .right("GFLOP/s", kNumber)
      .right("of dot", kNumber)
      .text();
}

std::string case_line(const ModelFigures& figures, const ModelCase& c) {
  return TextLine()
      .left(c.prefill ? cat("prefill ", c.tokens) : cat("decode, batch ", c.batch), kName)
      .right(to_text(spread_of(c.forward)), kRate)
      .right(to_text(spread_of(c.engine)), kRate)
      .right(fixed(c.engine_share().median, 3), kNumber + 2)
      .right(three_digits(1e-6 * (c.work.weight_bytes + c.work.kv_bytes) / c.all_tokens()), kNumber)
      .right(percent(c.read_share().median), kNumber)
      .right(three_digits(1e-9 * c.ops_per_s().median), kNumber)
      .right(percent(c.dot_share(figures.numbers).median), kNumber)
      .text();
}

void check_json_target(const std::string& path) {
  const OutputFile writable(path);
  if (std::filesystem::is_regular_file(path) && !may_be_replaced(path))
    throw Error(
        ErrorCode::kInvalidArgument,
        cat("--json ", path, ": the file exists and holds no figures of this command; expected a new name"));
}

void write_json(const std::string& path, const ModelFigures& figures) {
  OutputFile file(path);
  file.write(to_json_text(json_of(figures)) + "\n");
  file.commit();
}

}  // namespace lmdeploy
