// One step reads what is new, each further one a guess of all sequences together.
#include "lmdeploy/engine/draft_model.h"

#include <algorithm>

#include "lmdeploy/models/rope.h"

namespace lmdeploy {
namespace {

// Guesses that the target has drawn since.
int64_t num_right(const DraftSequence& draft, const Sequence& target) {
  const auto first = static_cast<size_t>(draft.num_confirmed);
  const auto guesses = std::span(draft.sequence.tokens).subspan(first);
  const auto drawn = std::span(target.tokens).subspan(first);
  return std::ranges::mismatch(guesses, drawn).in1 - guesses.begin();
}

}  // namespace

DraftModel::DraftModel(Model& model, const Kernels& kernels, const EngineConfig& config)
    : model_(model),
      groups_(config.block_len, model.kv_groups()),
      pool_(model, model.kv_layout(config.kv_dtype, config.block_len), config.draft_num_blocks, kernels),
      blocks_(config.draft_num_blocks),
      store_{blocks_, nullptr, groups_},
      sampler_(kernels),
      logits_(kernels),
      max_step_tokens_(config.max_prefill_token_num) {}

void DraftModel::guess(std::span<DraftWish> wishes) {
  for (DraftWish& wish : wishes) follow_target(*wish.draft, *wish.target);
  read(wishes);
  for (uint64_t position = 0; !open_.empty(); ++position) {
    draw(position);
    read_guesses();
  }
}

void DraftModel::follow_target(DraftSequence& draft, const Sequence& target) {
  Sequence& own = draft.sequence;
  const int64_t num_read = std::max<int64_t>(0, own.length() - draft.num_confirmed - 1);  // all but the last
  const int64_t num_kept = std::min(num_right(draft, target), num_read);
  own.tokens.resize(static_cast<size_t>(draft.num_confirmed));
  own.tokens.insert(own.tokens.end(), target.tokens.begin() + draft.num_confirmed, target.tokens.end());
  own.request_id = target.request_id;
  draft.num_confirmed = own.length();
  if (own.rope_length == 0) own.rope_length = target.rope_length;
  choose_rope(own);
  if (own.blocks.empty()) {
    take_blocks(own, store_);
  } else {
    advance(own, num_kept, store_);
  }
}

// As EngineCore's.
void DraftModel::choose_rope(Sequence& sequence) {
  const RopeSpec& rope = model_.spec().rope;
  const int64_t length = rope_length_at(rope, sequence.rope_length, sequence.length());
  const auto salt = static_cast<uint64_t>(rope_table_key(rope, length));
  sequence.rope_length = static_cast<int32_t>(length);
  if (salt != sequence.prefix_salt) drop_blocks(sequence, store_);
  sequence.prefix_salt = salt;
}

void DraftModel::read(std::span<DraftWish> wishes) {
  plan_.entries.clear();
  open_.clear();
  int64_t tokens_left = max_step_tokens_;
  for (DraftWish& wish : wishes) {
    Sequence& own = wish.draft->sequence;
    const int64_t count = std::min(own.num_pending(), tokens_left);
    if (count == 0) continue;
    if (!take_room(own, count, store_)) {
      drop_blocks(own, store_);  // so that somebody gets on
      continue;
    }
    const bool completes = count == own.num_pending();
    plan_.entries.push_back({.sequence = &own,
                             .first = own.cache_len,
                             .count = count,
                             .num_rows = completes ? 1 : 0,
                             .completes = completes});
    if (completes) open_.push_back(&wish);
    tokens_left -= count;
  }
  forward();
  for (const StepEntry& entry : plan_.entries) advance(*entry.sequence, entry.count, store_);
}

// A row that nothing can be drawn from ends the guesses of its sequence.
void DraftModel::draw(uint64_t position) {
  samples_.clear();
  for (const DraftWish* wish : open_) {
    SampleInput& input = samples_.emplace_back(wish->draw);
    input.row = static_cast<int64_t>(samples_.size()) - 1;
    input.tokens = wish->draft->sequence.tokens;
    input.draw += position;
  }
  const std::span<const SampleResult> results = sampler_.sample(logits_, samples_);
  size_t next = 0;
  std::erase_if(open_, [&](DraftWish* wish) {
    const int token = results[next++].token;
    if (token < 0) return true;
    wish->draft->sequence.tokens.push_back(token);
    wish->target->guesses.push_back(token);
    return static_cast<int64_t>(wish->target->guesses.size()) == wish->count;
  });
}

// The keys of guesses lie beyond cache_len until the target has drawn them too.
void DraftModel::read_guesses() {
  plan_.entries.clear();
  std::erase_if(open_, [&](DraftWish* wish) {
    Sequence& own = wish->draft->sequence;
    if (!take_room(own, own.num_pending(), store_)) return true;
    plan_.entries.push_back(
        {.sequence = &own, .first = own.length() - 1, .count = 1, .num_rows = 1, .completes = true});
    return false;
  });
  forward();
}

void DraftModel::forward() {
  if (plan_.entries.empty()) return;
  const StepInput input = buffers_.fill(plan_.entries, groups_.size(), pool_.other_caches());
  logits_.set(model_.forward(input, pool_.view()));
}

}  // namespace lmdeploy
