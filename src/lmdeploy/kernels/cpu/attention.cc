// Kernels::attention on the CPU: work is cut by sequence, kv head and tile of query rows; where that gives
// too few tasks for the threads, by spans of keys too. Spans are counted from key 0 and merged in order in
// both cases: a row's result is the same however the work was cut.
#include <algorithm>
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/cpu/cpu_kernels.h"

namespace lmdeploy::cpu {
namespace {

/// Query rows (token, head) of one task: enough to pay for the decoding of a tile of keys, few enough that
/// their state stays in the cache; fewer where threads would be idle.
constexpr int64_t kMaxTaskQueries = 192, kMinTaskQueries = 48;

/// The state of an online softmax for the queries of a task.
struct State {
  float* max;     // [queries]
  float* sum;     // [queries]
  float* values;  // [queries][value_stride]

  State(float* memory, int64_t queries) : max(memory), sum(memory + queries), values(sum + queries) {}
  static int64_t floats(int64_t queries, int64_t value_dim) {
    return queries * (2 + value_stride(value_dim));
  }
};

/// The arguments of one call.
struct AttentionCall {
  const IsaOps& ops;
  TensorView out;
  ConstTensorView q;
  const KvCacheView& cache;
  const AttentionBatch& batch;
  const AttentionOptions& options;
  int num_threads;

  int64_t head_dim() const { return cache.layout.head_dim; }
  int64_t value_dim() const { return cache.layout.value_dim(); }
  int64_t group() const { return options.num_heads / cache.layout.num_kv_heads; }
  int64_t window() const { return options.window > 0 ? options.window : INT64_MAX; }
  int64_t rows_per_task() const {
    const int64_t share = q.rows() * cache.layout.num_kv_heads / (4 * num_threads);
    const int64_t rows = std::clamp(share, kMinTaskQueries / group(), kMaxTaskQueries / group());
    return std::max<int64_t>(1, rows);
  }
  int64_t queries(const AttentionTask& task) const { return task.num_rows * group(); }
  int64_t state_floats() const { return State::floats(rows_per_task() * group(), value_dim()); }
  /// Memory of a thread: packed queries, scratch of the span kernel, then two states.
  int64_t query_floats() const { return packed_query_floats(rows_per_task() * group(), head_dim()); }
  int64_t thread_floats() const {
    return query_floats() + attention_scratch(head_dim()) + 2 * state_floats();
  }

  void plan(std::vector<AttentionTask>& tasks) const;
  /// next_end: see AttentionSpan; 0: the span's end.
  void run_span(const AttentionTask& task, int64_t span, const State& state, float* thread_memory,
                int64_t next_end = 0) const;
  void merge(const AttentionTask& task, int64_t span, const State& total, const State& other) const;
  void finish(const AttentionTask& task, const State& state) const;
  /// All spans of a task, one after the other.
  void run_task(const AttentionTask& task, float* thread_memory) const;
};

void AttentionCall::plan(std::vector<AttentionTask>& tasks) const {
  tasks.clear();
  int64_t spans = 0;
  const auto* query_start = batch.query_start.row<int32_t>(0);
  for (int64_t s = 0; s < batch.kv_len.cols(); ++s) {
    const int64_t end = query_start[s + 1];
    for (int64_t head = 0; head < cache.layout.num_kv_heads; ++head) {
      for (int64_t row = query_start[s]; row < end; row += rows_per_task()) {
        const int64_t keys = batch.kv_len.row<int32_t>(0)[s] - (end - row) + 1;
        tasks.push_back({.sequence = s,
                         .kv_head = head,
                         .first_row = row,
                         .num_rows = std::min(rows_per_task(), end - row),
                         .first_keys = keys,
                         .first_key = std::max<int64_t>(0, keys - window()),
                         .spans_before = spans});
        spans += tasks.back().num_spans();
      }
    }
  }
}

void AttentionCall::run_span(const AttentionTask& task, int64_t span, const State& state,
                             float* thread_memory, int64_t next_end) const {
  const int64_t end_key = std::min((span + 1) * kSpanKeys, task.end_key());
  const KvLayout& l = cache.layout;
  const std::byte* k = cache.data + options.layer * l.layer_bytes() + task.kv_head * l.key_plane_bytes();
  const std::byte* values = cache.data + options.layer * l.layer_bytes() +
                            l.num_kv_heads * l.key_plane_bytes() + task.kv_head * l.value_plane_bytes();
  ops.pack_queries(thread_memory, {.q = q.row<float>(task.first_row) + task.kv_head * group() * head_dim(),
                                   .stride = q.row_stride_bytes() / static_cast<int64_t>(sizeof(float)),
                                   .group = group(),
                                   .num_queries = queries(task),
                                   .head_dim = head_dim(),
                                   .turned_run = l.turned_run(),
                                   .first_part = l.key_parts() == 2 ? l.row_bytes() : head_dim()});
  ops.attention_span({.kind = cache_kind(l.dtype),
                      .k = k,
                      .v = l.latent_dim > 0 ? k : values,
                      .row_bytes = l.row_bytes(),
                      .params_offset = l.codes_bytes(),
                      .key_parts = l.key_parts(),
                      .block_bytes = l.block_bytes(),
                      .block_table = batch.block_table.row<int32_t>(task.sequence),
                      .block_len = l.block_len,
                      .head_dim = head_dim(),
                      .value_dim = value_dim(),
                      .first_key = std::max(span * kSpanKeys, task.first_key),
                      .end_key = end_key,
                      .next_end = std::max(next_end, end_key),
                      .num_queries = queries(task),
                      .q = thread_memory,
                      .group = group(),
                      .first_keys = task.first_keys,
                      .window = window(),
                      .scale = options.scale,
                      .soft_cap = options.soft_cap,
                      .alibi_slopes = options.alibi_slopes
                                          ? options.alibi_slopes->row<float>(0) + task.kv_head * group()
                                          : nullptr,
                      .alibi_in_bf16 = options.alibi_in_bf16,
                      .max = state.max,
                      .sum = state.sum,
                      .values = state.values,
                      .scratch = thread_memory + query_floats()});
}

// A state that has seen nothing, (-inf, 0, 0), merges exactly: the bits do not depend on where a task began.
void AttentionCall::merge(const AttentionTask& task, int64_t span, const State& total,
                          const State& other) const {
  const int64_t stride = value_stride(value_dim());
  for (int64_t i = 0; i < queries(task); ++i) {
    const int64_t end = task.first_keys + i / group();
    if (end <= span * kSpanKeys || end - window() >= (span + 1) * kSpanKeys) continue;  // sees none of it
    ops.merge_spans(total.max + i, total.sum + i, total.values + i * stride, other.max[i], other.sum[i],
                    other.values + i * stride, value_dim());
  }
}

void AttentionCall::finish(const AttentionTask& task, const State& state) const {
  for (int64_t i = 0; i < queries(task); ++i) {
    const int64_t head = task.kv_head * group() + i % group();
    const float sink = options.sinks ? options.sinks->row<float>(0)[head] : -HUGE_VALF;
    ops.finish_row(out.row<float>(task.first_row + i / group()) + head * value_dim(),
                   state.values + i * value_stride(value_dim()), state.max[i], state.sum[i], sink,
                   value_dim());
  }
}

void AttentionCall::run_task(const AttentionTask& task, float* thread_memory) const {
  float* states = thread_memory + query_floats() + attention_scratch(head_dim());
  const State total(states, queries(task));
  const State other(states + state_floats(), queries(task));
  run_span(task, task.first_span(), total, thread_memory, task.end_key());
  for (int64_t span = task.first_span() + 1; span < task.end_span(); ++span) {
    run_span(task, span, other, thread_memory, task.end_key());
    merge(task, span, total, other);
  }
  finish(task, total);
}

}  // namespace

void CpuKernels::do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache,
                              const AttentionBatch& batch, const AttentionOptions& options) const {
  checks::attention_values(cache, batch, q.rows(), options.window);
  const AttentionCall call = {ops_, out, q, cache, batch, options, threads_->num_threads()};
  std::vector<AttentionTask>& tasks = attention_tasks_;
  call.plan(tasks);
  const auto num_tasks = static_cast<int64_t>(tasks.size());
  const auto memory = [&](int worker) {
    return thread_scratch_[static_cast<size_t>(worker)].floats(call.thread_floats());
  };
  const int64_t num_spans = tasks.back().spans_before + tasks.back().num_spans();
  if (num_tasks >= 4 * threads_->num_threads() || num_spans == num_tasks) {
    for_pieces(num_tasks, 1, [&](int worker, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) call.run_task(tasks[static_cast<size_t>(i)], memory(worker));
    });
    return;
  }
  float* states = shared_scratch_.floats(num_spans * call.state_floats());
  // The state of the i-th span of a task.
  const auto state = [&](const AttentionTask& task, int64_t i) {
    return State(states + (task.spans_before + i) * call.state_floats(), call.queries(task));
  };
  for_pieces(num_spans, 1, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const AttentionTask& task =
          *(std::upper_bound(tasks.begin(), tasks.end(), i,
                             [](int64_t span, const AttentionTask& t) { return span < t.spans_before; }) -
            1);
      const int64_t nth = i - task.spans_before;
      call.run_span(task, task.first_span() + nth, state(task, nth), memory(worker));
    }
  });
  for_pieces(num_tasks, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const AttentionTask& task = tasks[static_cast<size_t>(i)];
      for (int64_t nth = 1; nth < task.num_spans(); ++nth)
        call.merge(task, task.first_span() + nth, state(task, 0), state(task, nth));
      call.finish(task, state(task, 0));
    }
  });
}

}  // namespace lmdeploy::cpu
