// How the weights of a model are dealt out to the ranks of tensor parallelism: what each has of every size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmdeploy/models/load_plan.h"

namespace lmdeploy {

/// Neighbours among the rows, columns or elements of a whole weight, or zeros that no weight has.
struct ShardRun {
  int64_t begin = 0;  // kZeros: not of the weight
  int64_t count = 0;

  static constexpr int64_t kZeros = -1;
  bool operator==(const ShardRun&) const = default;
};
using ShardRuns = std::vector<ShardRun>;

/// What borders between ranks must be multiples of: elements of a block of the weights that are cut across
/// their columns.
struct ShardUnits {
  int64_t attention_out = 1;
  int64_t inner = 1;
  int64_t expert_inner = 1;
  int64_t shared_inner = 1;
};
/// Of the weights that a plan reads. Throws Error(kUnsupported) for columns that cannot be cut.
ShardUnits shard_units(const Checkpoint& checkpoint, const LoadPlan& plan);

/// Attention is cut by heads: each rank has whole kv heads, or, of a kv head that several ranks have, some of
/// its query heads. MLPs and experts are cut by inner elements, the output matrix by ids of the vocabulary;
/// everything else is on all ranks. All ranks have the same sizes: where elements run out there are zeros.
class Sharding {
 public:
  static constexpr int64_t kMostRanks = 16;

  /// Throws Error(kUnsupported) naming what cannot be cut, its numbers and the numbers of ranks that work.
  Sharding(const DecoderSpec& spec, int64_t num_ranks, const ShardUnits& units);

  int64_t num_ranks() const { return num_ranks_; }
  /// A rank's share as a model.
  const DecoderSpec& rank_spec(int64_t rank) const { return rank_specs_[static_cast<size_t>(rank)]; }

  /// Of a matrix of the rule's slot.
  ShardRuns rows(const WeightRule& rule, int64_t rank) const;
  ShardRuns cols(const WeightRule& rule, int64_t rank) const { return runs(rule.cols, rank); }
  /// Of the vector that this rule gives: all its tensors, one after the other.
  ShardRuns elements(const WeightRule& rule, int64_t rank) const;
  /// Query heads, for slots that have a matrix for each.
  ShardRuns heads(int64_t rank) const;

 private:
  ShardRuns runs(Dim dim, int64_t rank) const;
  ShardRuns kv_heads(int64_t rank) const;
  DecoderSpec make_rank_spec(int64_t rank, const ShardUnits& units) const;

  DecoderSpec spec_;  // of the whole model
  int64_t num_ranks_;
  std::vector<DecoderSpec> rank_specs_;
};

}  // namespace lmdeploy
