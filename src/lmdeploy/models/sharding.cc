#include "lmdeploy/models/sharding.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/models/stored_weight.h"

namespace lmdeploy {
namespace {

/// Rows of 16-bit numbers that are whole vectors of 16 bytes go through the fast kernels.
constexpr int64_t kAlignment = 8;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What each of `num_ranks` has of `whole` elements.
int64_t equal_share(int64_t whole, int64_t num_ranks, int64_t unit) {
  const int64_t step = std::lcm(unit, kAlignment);
  return ceil_div(ceil_div(whole, num_ranks), step) * step;
}

// Elements [begin, begin + own) of the first `end`.
ShardRuns run_of(int64_t begin, int64_t own, int64_t end) {
  const int64_t count = std::clamp<int64_t>(end - begin, 0, own);
  ShardRuns runs;
  if (count > 0) runs.push_back({begin, count});
  if (count < own) runs.push_back({ShardRun::kZeros, own - count});
  return runs;
}

ShardRuns scaled(ShardRuns runs, int64_t factor) {
  for (ShardRun& run : runs) {
    if (run.begin != ShardRun::kZeros) run.begin *= factor;
    run.count *= factor;
  }
  return runs;
}

// Runs that meet become one: of a whole weight one is left, which is not copied.
void append(ShardRuns& runs, const ShardRuns& more, int64_t offset) {
  for (const ShardRun& run : more) {
    const int64_t begin = run.begin == ShardRun::kZeros ? run.begin : run.begin + offset;
    if (begin != ShardRun::kZeros && !runs.empty() && runs.back().begin != ShardRun::kZeros &&
        runs.back().begin + runs.back().count == begin)
      runs.back().count += run.count;
    else
      runs.push_back({begin, run.count});
  }
}

ShardRuns repeated(const ShardRuns& once, int64_t times, int64_t step) {
  ShardRuns all;
  for (int64_t i = 0; i < times; ++i) append(all, once, i * step);
  return all;
}

/// How query heads meet ranks.
struct HeadShares {
  int64_t ranks_per_group = 1;  // ranks that have the same kv heads
  int64_t group_heads = 0;      // query heads of these
  int64_t own = 0;              // of a rank, zeros included

  HeadShares(const DecoderSpec& spec, int64_t num_ranks) {
    if (spec.has_latent())
      ranks_per_group = num_ranks;  // all heads read one latent row
    else if (spec.num_kv_heads % num_ranks != 0)
      ranks_per_group = num_ranks / spec.num_kv_heads;
    group_heads = spec.num_heads / (num_ranks / ranks_per_group);
    own = ceil_div(group_heads, ranks_per_group);
  }
  int64_t first(int64_t rank) const {
    return rank / ranks_per_group * group_heads + rank % ranks_per_group * own;
  }
  int64_t end(int64_t rank) const { return (rank / ranks_per_group + 1) * group_heads; }
};

int64_t head_columns(const DecoderSpec& spec) {
  return spec.has_latent() ? spec.latent.value_dim : spec.head_dim;
}

// Why attention cannot be cut so; "" if it can.
std::string attention_problem(const DecoderSpec& spec, int64_t num_ranks, int64_t unit) {
  if (spec.qk_norm == QkNorm::kWholeRow)
    return "attention: the norms of q and k run over all heads, which are on different ranks";
  const int64_t kv = spec.num_kv_heads;
  const std::string heads = cat("attention: ", spec.num_heads, " query heads",
                                spec.has_latent() ? std::string() : cat(" over ", kv, " kv heads"));
  if (!spec.has_latent() && kv % num_ranks != 0 && num_ranks % kv != 0)
    return cat(heads, ": the kv heads must be a multiple of the ranks, or the ranks of the kv heads");
  const HeadShares shares(spec, num_ranks);
  if ((shares.ranks_per_group - 1) * shares.own >= shares.group_heads)
    return cat(heads, ": a rank would have none");
  const int64_t dim = head_columns(spec);
  for (int64_t rank = 1; rank < num_ranks; ++rank)
    if (shares.first(rank) * dim % unit != 0 ||
        std::min(shares.own, shares.end(rank) - shares.first(rank)) * dim % unit != 0)
      return cat("attention output projection: it is quantised in groups of ", unit, ", and ", shares.own,
                 " heads of ", dim, " elements are no whole groups");
  return "";
}

std::string problem(const DecoderSpec& spec, int64_t num_ranks, const ShardUnits& units) {
  if (num_ranks < 1 || num_ranks > Sharding::kMostRanks) return cat("at most ", Sharding::kMostRanks, " do");
  return num_ranks == 1 ? std::string() : attention_problem(spec, num_ranks, units.attention_out);
}

std::string working_ranks(const DecoderSpec& spec, const ShardUnits& units) {
  std::string list;
  for (int64_t ranks = 1; ranks <= Sharding::kMostRanks; ++ranks)
    if (problem(spec, ranks, units).empty()) list += cat(list.empty() ? "" : ", ", ranks);
  return list;
}

// What every rank adds to a sum must be added once.
bool is_output_bias(Slot slot) {
  return slot == Slot::kOBias || slot == Slot::kDownBias || slot == Slot::kExpertDownBias;
}
bool has_vector_of_each_expert(Slot slot) {
  return slot == Slot::kExpertUpBias || slot == Slot::kExpertDownBias;
}
bool is_named_by(const WeightRule& rule, std::string_view mark) {
  return rule.name.find(mark) != std::string_view::npos;
}

int64_t* unit_of(Slot slot, ShardUnits& units) {
  if (slot == Slot::kO) return &units.attention_out;
  if (slot == Slot::kDown) return &units.inner;
  if (slot == Slot::kExpertDown) return &units.expert_inner;
  return slot == Slot::kSharedDown ? &units.shared_inner : nullptr;
}

}  // namespace

ShardUnits shard_units(const Checkpoint& checkpoint, const LoadPlan& plan) {
  ShardUnits units;
  for (const SlotPlan& slot : plan.slots) {
    int64_t* unit = unit_of(slot.slot, units);
    if (unit == nullptr) continue;
    for (const PartPlan& part : slot.parts) {
      for (const size_t index : part.tensors) {
        const TensorInfo& info = checkpoint.tensors()[index];
        if (info.column_order != nullptr)
          throw Error(
              ErrorCode::kUnsupported,
              cat("load ", checkpoint.path(), ": not supported: tensor parallelism with ", quote(info.name),
                  ", because its columns are quantised in an order of their own "
                  "(desc_act), in which a rank's are no whole groups; use tp 1, or a checkpoint "
                  "that was quantised without desc_act"));
        if (keeps_rows(part.rule->stored)) *unit = std::lcm(*unit, block_size(info.dtype));
      }
    }
  }
  return units;
}

Sharding::Sharding(const DecoderSpec& spec, int64_t num_ranks, const ShardUnits& units)
    : spec_(spec), num_ranks_(num_ranks) {
  const std::string why = problem(spec, num_ranks, units);
  if (!why.empty())
    throw Error(ErrorCode::kUnsupported,
                cat("not supported: tensor parallelism over ", num_ranks, " ranks, because of ", why,
                    "; use one of these for tp: ", working_ranks(spec, units)));
  for (int64_t rank = 0; rank < num_ranks; ++rank) rank_specs_.push_back(make_rank_spec(rank, units));
}

DecoderSpec Sharding::make_rank_spec(int64_t rank, const ShardUnits& units) const {
  if (num_ranks_ == 1) return spec_;
  const HeadShares shares(spec_, num_ranks_);
  DecoderSpec own = spec_;
  own.whole = {
      .num_heads = spec_.num_heads, .first_head = shares.first(rank), .head_size = spec_.head_size()};
  own.num_heads = shares.own;
  own.num_kv_heads = std::max<int64_t>(1, spec_.num_kv_heads / num_ranks_);
  own.intermediate_size = equal_share(spec_.intermediate_size, num_ranks_, units.inner);
  if (!spec_.gives_score) own.vocab_size = equal_share(spec_.vocab_size, num_ranks_, 1);
  ExpertSpec& experts = own.experts;
  experts.inner_size = equal_share(experts.inner_size, num_ranks_, units.expert_inner);
  experts.shared_inner_size = equal_share(experts.shared_inner_size, num_ranks_, units.shared_inner);
  return own;
}

ShardRuns Sharding::heads(int64_t rank) const {
  const HeadShares shares(spec_, num_ranks_);
  return run_of(shares.first(rank), shares.own, shares.end(rank));
}

ShardRuns Sharding::kv_heads(int64_t rank) const {
  const int64_t own = rank_spec(rank).num_kv_heads, kv = spec_.num_kv_heads;
  return {{rank * kv / num_ranks_, own}};
}

ShardRuns Sharding::runs(Dim dim, int64_t rank) const {
  const DecoderSpec& own = rank_spec(rank);
  const LatentSpec& latent = spec_.latent;
  const auto share = [&](int64_t whole, int64_t part) { return run_of(rank * part, part, whole); };
  const auto gate_up = [&](int64_t whole, int64_t part) { return repeated(share(whole, part), 2, whole); };
  switch (dim) {
    case Dim::kHeads:
      return heads(rank);
    case Dim::kQ:
      return scaled(heads(rank), spec_.head_dim);
    case Dim::kKv:
      return scaled(kv_heads(rank), spec_.head_dim);
    case Dim::kQkv: {
      ShardRuns all = runs(Dim::kQ, rank);
      append(all, runs(Dim::kKv, rank), spec_.q_size());
      append(all, runs(Dim::kKv, rank), spec_.q_size() + spec_.kv_size());
      return all;
    }
    case Dim::kLatentQ:
      return scaled(heads(rank), latent.nope_dim + latent.rope_dim);
    case Dim::kLatentOut:
      return scaled(heads(rank), latent.value_dim);
    case Dim::kInner:
      return share(spec_.intermediate_size, own.intermediate_size);
    case Dim::kGateUp:
      return gate_up(spec_.intermediate_size, own.intermediate_size);
    case Dim::kExpertInner:
      return share(spec_.experts.inner_size, own.experts.inner_size);
    case Dim::kExpertGateUp:
      return gate_up(spec_.experts.inner_size, own.experts.inner_size);
    case Dim::kSharedInner:
      return share(spec_.experts.shared_inner_size, own.experts.shared_inner_size);
    case Dim::kVocab:
      return share(spec_.vocab_size, own.vocab_size);
    default:
      return {{0, size_of(dim, spec_)}};
  }
}

ShardRuns Sharding::rows(const WeightRule& rule, int64_t rank) const {
  if (rule.slot == Slot::kEmbed) return {{0, size_of(rule.rows, spec_)}};
  return runs(rule.rows, rank);
}

ShardRuns Sharding::elements(const WeightRule& rule, int64_t rank) const {
  const int64_t size = size_of(rule.rows, spec_);
  const int64_t times = has_vector_of_each_expert(rule.slot) ? spec_.experts.num_experts : 1;
  if (is_output_bias(rule.slot) && rank > 0) return {{ShardRun::kZeros, times * size}};
  if (is_named_by(rule, "{h}")) return runs(Dim::kQ, rank);
  if (is_named_by(rule, "{g}")) return runs(Dim::kKv, rank);
  return repeated(rows(rule, rank), times, size);
}

}  // namespace lmdeploy
