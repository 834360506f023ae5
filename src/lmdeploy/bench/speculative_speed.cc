#include "lmdeploy/bench/speculative_speed.h"

#include <algorithm>
#include <array>
#include <memory>

#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

struct PromptSet {
  const char* name;
  std::vector<const char*> prompts;
};

const char* const kJson =
    "Repeat this JSON exactly, with the city of Anna changed to Oslo:\n"
    "[{\"name\": \"Anna\", \"age\": 31, \"city\": \"Berlin\", \"tags\": [\"admin\", \"editor\"]},\n"
    " {\"name\": \"Bernd\", \"age\": 45, \"city\": \"Hamburg\", \"tags\": [\"editor\"]},\n"
    " {\"name\": \"Clara\", \"age\": 27, \"city\": \"Leipzig\", \"tags\": [\"reader\", \"guest\"]},\n"
    " {\"name\": \"David\", \"age\": 52, \"city\": \"Dresden\", \"tags\": [\"admin\"]}]";
const char* const kText =
    "Repeat the following text word for word, and change only the name of the river to Elbe:\n\n"
    "The old ferry crossed the river Rhine every morning at six. Farmers brought milk and apples to the "
    "market "
    "on the other bank, and in the evening they came back with newspapers, candles and sugar. In winter, "
    "when the "
    "ice was thick enough, nobody needed the ferry, and the ferryman repaired his nets beside the stove. His "
    "daughter kept the accounts in a green book: the names of all passengers, what they carried, and what "
    "they "
    "had paid. When the bridge was opened, she wrote the last line into it and closed it for good.";
const char* const kCode =
    "Repeat this Python code and rename the function total to total_price:\n\n"
    "def total(items, tax_rate):\n    amount = 0\n    for item in items:\n"
    "        if item.quantity <= 0:\n            raise ValueError(f\"{item.name}: quantity must be "
    "positive\")\n"
    "        amount += item.price * item.quantity\n    return amount * (1 + tax_rate)\n\n"
    "def print_bill(items, tax_rate):\n    for item in items:\n"
    "        print(f\"{item.name}: {item.price} x {item.quantity}\")\n"
    "    print(\"Total:\", total(items, tax_rate))\n";

const PromptSet kSets[] = {{"copying", {kJson, kText, kCode}},
                           {"other",
                            {"Tell a story about a lighthouse keeper who finds a letter in a bottle.",
                             "Explain how bread rises, and what can go wrong.",
                             "What should somebody know before they move from a village to a large city?"}}};

std::unique_ptr<Pipeline> open(const SpeculativeSpeedOptions& options, bool guessed) {
  PipelineConfig config;
  config.model_path = options.model_path;
  config.device_type = "cpu";
  config.num_threads = options.num_threads;
  config.max_batch_size = 1;
  if (guessed) config.speculative = options.speculative;
  return std::make_unique<Pipeline>(config);
}

struct Answer {
  std::vector<int> token_ids;
  double decode_seconds = 0;  // from the first token on
};

Answer answer(Pipeline& pipeline, const char* prompt, int64_t max_new_tokens) {
  GenerationConfig config;
  config.max_new_tokens = max_new_tokens;
  const auto stream = pipeline.submit(std::string(prompt), config);
  Answer out;
  Clock::time_point first;
  while (!stream->finished()) {
    const auto piece = stream->next(std::chrono::milliseconds(1000));
    if (!piece) continue;
    if (piece->error_code) throw Error(*piece->error_code, piece->error_message);
    if (out.token_ids.empty()) first = Clock::now();
    out.token_ids.insert(out.token_ids.end(), piece->token_ids.begin(), piece->token_ids.end());
  }
  out.decode_seconds = seconds_since(first);
  return out;
}

SpeculativeStats minus(SpeculativeStats stats, const SpeculativeStats& before) {
  stats.num_drafts -= before.num_drafts;
  stats.num_draft_tokens -= before.num_draft_tokens;
  stats.num_accepted_tokens -= before.num_accepted_tokens;
  return stats;
}

/// One round of a set: tokens a second, plain and guessed, prompt by prompt in turn.
std::array<double, 2> run_round(const std::array<Pipeline*, 2>& pipelines, const PromptSet& set,
                                int64_t max_new_tokens, bool guessed_first) {
  std::array<double, 2> seconds = {}, tokens = {};
  for (const char* prompt : set.prompts) {
    std::array<std::vector<int>, 2> ids;
    for (size_t turn = 0; turn < 2; ++turn) {
      const size_t i = guessed_first ? 1 - turn : turn;
      Answer a = answer(*pipelines[i], prompt, max_new_tokens);
      seconds[i] += a.decode_seconds;
      tokens[i] += static_cast<double>(a.token_ids.size()) - 1;
      ids[i] = std::move(a.token_ids);
    }
    if (ids[0] != ids[1])
      throw Error(ErrorCode::kInternal, cat("the answers with and without guesses differ; prompt: ", prompt));
  }
  return {tokens[0] / seconds[0], tokens[1] / seconds[1]};
}

}  // namespace

Spread SpeculativeCase::gain() const {
  std::vector<double> gains;
  for (size_t round = 0; round < plain.size(); ++round) gains.push_back(guessed[round] / plain[round]);
  return spread_of(std::move(gains));
}

std::vector<SpeculativeCase> measure_speculative(
    const SpeculativeSpeedOptions& options, const std::function<void(const SpeculativeCase&)>& measured) {
  const std::unique_ptr<Pipeline> plain = open(options, false), guessed = open(options, true);
  const std::array<Pipeline*, 2> pipelines = {plain.get(), guessed.get()};
  for (Pipeline* pipeline : pipelines) answer(*pipeline, kSets[0].prompts[0], 16);  // warms up
  std::vector<SpeculativeCase> cases;
  for (const PromptSet& set : kSets) {
    SpeculativeCase& c =
        cases.emplace_back(SpeculativeCase{.name = set.name, .plain = {}, .guessed = {}, .stats = {}});
    const SpeculativeStats before = guessed->engine().stats().speculative;
    for (int round = 0; round < options.rounds; ++round) {
      const auto rates = run_round(pipelines, set, options.max_new_tokens, round % 2 == 1);
      c.plain.push_back(rates[0]);
      c.guessed.push_back(rates[1]);
    }
    c.stats = minus(guessed->engine().stats().speculative, before);
    if (measured) measured(c);
  }
  return cases;
}

std::string speculative_head() {
  return TextLine()
      .left("tokens/s", 10)
      .right("plain", 20)
      .right("guessed", 20)
      .right("gain", 22)
      .right("guesses", 10)
      .right("accepted", 10)
      .text();
}

std::string speculative_line(const SpeculativeCase& c) {
  const auto count = [](int64_t value) { return static_cast<double>(value); };
  const double accepted =
      100 * count(c.stats.num_accepted_tokens) / std::max(1.0, count(c.stats.num_draft_tokens));
  return TextLine()
      .left(c.name, 10)
      .right(to_text(spread_of(c.plain)), 20)
      .right(to_text(spread_of(c.guessed)), 20)
      .right(to_text(c.gain()), 22)
      .right(cat(c.stats.num_draft_tokens), 10)
      .right(fixed(accepted, 0) + " %", 10)
      .text();
}

}  // namespace lmdeploy
