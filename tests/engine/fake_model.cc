// Slots, hashes, logits.
#include "fake_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy::testing {
namespace {

struct Slot {
  uint64_t hash = 0;
  int32_t token = 0;
  int32_t position = 0;
};
constexpr int64_t kHeadDim = 4;  // f32: the K part of a token holds one Slot
static_assert(sizeof(Slot) == kHeadDim * sizeof(float));

uint64_t next_hash(uint64_t hash, int token) { return mix_bits(hash ^ static_cast<uint64_t>(token)) + 1; }

class Cache {
 public:
  Cache(const KvCacheView& view, const StepInput& input, size_t group, size_t sequence)
      : view_(view), salt_(group * 0x9e3779b97f4a7c15ull) {
    const size_t line = group * input.kv_len.size() + sequence;
    blocks_ =
        input.block_table
            .subspan(line * static_cast<size_t>(input.max_blocks), static_cast<size_t>(input.max_blocks))
            .data();
  }
  Slot read(int64_t position) const {
    Slot slot;
    std::memcpy(&slot, at(position), sizeof(slot));
    slot.hash ^= salt_;
    return slot;
  }
  void write(int64_t position, Slot slot) const {
    slot.hash ^= salt_;
    std::memcpy(at(position), &slot, sizeof(slot));
  }

 private:
  std::byte* at(int64_t position) const {
    const int64_t block = blocks_[position / view_.layout.block_len];
    if (block < 0 || block >= view_.num_blocks) throw Error(ErrorCode::kInternal, cat("block ", block));
    return view_.data + block * view_.layout.block_bytes() +
           position % view_.layout.block_len * static_cast<int64_t>(sizeof(Slot));
  }
  KvCacheView view_;
  uint64_t salt_;  // groups do not understand each other's slots
  const int32_t* blocks_;
};

int64_t first_seen(const KvGroup& group, int64_t position) {
  return group.window == 0 ? 0 : std::max<int64_t>(0, position - group.window + 1);
}

}  // namespace

FakeModel::FakeModel(const FakeOptions& options)
    : options_(options),
      logits_(DType::kF32, {options.max_logit_rows, options.vocab_size}),
      hidden_(DType::kF32, {options.max_logit_rows, 2}) {
  spec_.architecture = "FakeForCausalLM";
  spec_.vocab_size = options.vocab_size;
  spec_.hidden_size = 2;
  spec_.max_positions = options.max_positions;
  spec_.learned_positions = options.learned_positions;
  spec_.rope = options.rope;
  for (const int64_t window : options.windows) groups_.push_back({window});
  const auto remembers = [](const KvGroup& group) { return group.window != 1; };
  LMD_CHECK(std::ranges::any_of(groups_, remembers), "no token would see the one before it");
}

KvLayout FakeModel::kv_layout(DType, int64_t block_len) const {
  return {
      .dtype = DType::kF32, .num_layers = 1, .num_kv_heads = 1, .head_dim = kHeadDim, .block_len = block_len};
}

// The ids of tokens that have just been drawn are nonsense in `token_ids`.
StepInput FakeModel::with_drawn(StepInput input) {
  if (input.draws.empty()) return input;
  ids_.assign(input.token_ids.begin(), input.token_ids.end());
  const Shape shape = {static_cast<int64_t>(ids_.size())};
  drawing->take_drawn({reinterpret_cast<std::byte*>(ids_.data()), DType::kI32, shape},
                      {reinterpret_cast<const std::byte*>(input.draws.data()), DType::kI32, shape});
  input.token_ids = ids_;
  return input;
}

TensorView FakeModel::forward(const StepInput& given, const KvCacheView& cache) {
  const StepInput input = with_drawn(given);
  if (before_step) before_step(input);
  check_limits(input);
  next_row_ = 0;
  StepRecord record = {static_cast<int64_t>(input.token_ids.size()),
                       static_cast<int64_t>(input.kv_len.size())};
  for (size_t s = 0; s < input.kv_len.size(); ++s) {
    run_sequence(input, cache, s);
    const int64_t count = input.query_start[s + 1] - input.query_start[s];
    if (count > 1) record.prompt_tokens += count;
  }
  steps.push_back(record);
  return logits_.view().slice_rows(0, next_row_);
}

void FakeModel::check_limits(const StepInput& input) const {
  if (static_cast<int64_t>(input.token_ids.size()) > options_.max_step_tokens)
    throw Error(ErrorCode::kInternal, cat("a step of ", input.token_ids.size(), " tokens"));
  if (static_cast<int64_t>(input.logit_rows.size()) > options_.max_logit_rows)
    throw Error(ErrorCode::kInternal, cat("a step of ", input.logit_rows.size(), " logit rows"));
}

struct FakeModel::History {
  std::vector<int> tokens;       // -1: not seen
  std::vector<uint64_t> hashes;  // 0: not seen
};

FakeModel::History FakeModel::read_history(const StepInput& input, const KvCacheView& cache, size_t s,
                                           int64_t count) const {
  const auto size = static_cast<size_t>(count);
  History history = {std::vector<int>(size, -1), std::vector<uint64_t>(size, 0)};
  for (size_t group = 0; group < groups_.size(); ++group) {
    const Cache slots(cache, input, group, s);
    for (int64_t p = first_seen(groups_[group], count); p < count; ++p) {
      const Slot slot = slots.read(p);
      uint64_t& hash = history.hashes[static_cast<size_t>(p)];
      if (slot.position != p || (hash != 0 && hash != slot.hash))
        throw Error(ErrorCode::kInternal,
                    cat("sequence ", s, ", group ", group, ", position ", p, ": the slot holds token ",
                        slot.token, " of position ", slot.position));
      hash = slot.hash;
      history.tokens[static_cast<size_t>(p)] = slot.token;
    }
  }
  uint64_t previous = static_cast<uint64_t>(rope_table_key(spec_.rope, input.rope_length[s]));
  for (size_t p = 0; p < size; ++p) {
    const uint64_t hash = history.hashes[p];
    if (previous != 0 || p == 0)
      if (hash != 0 && hash != next_hash(previous, history.tokens[p]))
        throw Error(ErrorCode::kInternal, cat("sequence ", s, ", position ", p, ": another history"));
    previous = hash;
  }
  return history;
}

void FakeModel::run_sequence(const StepInput& input, const KvCacheView& cache, size_t s) {
  const int64_t begin_row = input.query_start[s], num_new = input.query_start[s + 1] - begin_row;
  const int64_t num_old = input.kv_len[s] - num_new;
  History history = read_history(input, cache, s, num_old);
  uint64_t hash = num_old > 0 ? history.hashes.back()
                              : static_cast<uint64_t>(rope_table_key(spec_.rope, input.rope_length[s]));
  for (int64_t i = 0; i < num_new; ++i) {
    const auto row = static_cast<int32_t>(begin_row + i);
    const int token = input.token_ids[static_cast<size_t>(row)];
    hash = next_hash(hash, token);
    for (size_t group = 0; group < groups_.size(); ++group)
      Cache(cache, input, group, s).write(num_old + i, {hash, token, static_cast<int32_t>(num_old + i)});
    history.tokens.push_back(token);
    if (!std::ranges::binary_search(input.logit_rows, row)) continue;
    float* hidden = hidden_.view().row<float>(next_row_);
    hidden[0] = static_cast<float>(history.tokens.size());
    hidden[1] = static_cast<float>(token);
    fill_logits(history.tokens, hash, logits_.view().row<float>(next_row_++));
  }
}

void FakeModel::fill_logits(std::span<const int> tokens, uint64_t hash, float* row) const {
  for (int64_t id = 0; id < options_.vocab_size; ++id)
    row[id] = static_cast<float>(4 * random_uniform(hash, static_cast<uint64_t>(id)));
  if (script) row[script(tokens)] = 100;
  if (tokens.back() == poison_token) row[0] = std::numeric_limits<float>::quiet_NaN();
}

std::vector<float> FakeModel::logits_after(std::span<const int> tokens, int64_t first_prompt) const {
  const int64_t rope_length = rope_length_at(spec_.rope, first_prompt, static_cast<int64_t>(tokens.size()));
  uint64_t hash = static_cast<uint64_t>(rope_table_key(spec_.rope, rope_length));
  for (const int token : tokens) hash = next_hash(hash, token);
  std::vector<float> row(static_cast<size_t>(options_.vocab_size));
  fill_logits(tokens, hash, row.data());
  return row;
}

std::vector<int> FakeModel::generate(std::vector<int> tokens, int64_t count) const {
  const auto prompt = static_cast<int64_t>(tokens.size());
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<float> row = logits_after(tokens, prompt);
    tokens.push_back(static_cast<int>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  return {tokens.begin() + prompt, tokens.end()};
}

void guess_mostly_right(FakeModel& draft, const FakeModel& target) {
  draft.script = [&target](std::span<const int> tokens) {
    const std::vector<float> row = target.logits_after(tokens, 1);
    const auto best = static_cast<int>(std::ranges::max_element(row) - row.begin());
    return mix_bits(static_cast<uint64_t>(best) + tokens.size()) % 4 == 0 ? 0 : best;
  };
}

}  // namespace lmdeploy::testing
