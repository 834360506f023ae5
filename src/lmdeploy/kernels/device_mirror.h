// A device's back end behind host memory, so that op tests of the CPU run on it unchanged. For tests only.
#pragma once

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

/// Copies what a call reads and writes to the device, padding included, and what it writes back.
class MirroredCall {
 public:
  explicit MirroredCall(const Kernels& device) : device_(device) {}

  ConstTensorView in(ConstTensorView host) { return place(host, false); }
  std::optional<ConstTensorView> in(const std::optional<ConstTensorView>& host) {
    return host ? std::optional<ConstTensorView>(in(*host)) : std::nullopt;
  }
  TensorView out(TensorView host) {
    const ConstTensorView view = place(host, true);
    return {const_cast<std::byte*>(view.data()), view.dtype(), view.shape(), view.row_stride_bytes()};
  }
  KvCacheView cache(const KvCacheView& host, bool written) {
    const int64_t bytes = host.num_blocks * host.layout.block_bytes();
    const TensorView all(host.data, DType::kU8, {bytes});
    return {host.layout, const_cast<std::byte*>(place(all, written).data()), host.num_blocks};
  }
  void finish() const {
    for (const Region& region : regions_) {
      if (!region.written) continue;
      Tensor back;
      const ConstTensorView bytes = device_.to_host(region.device, back);
      std::memcpy(const_cast<std::byte*>(region.begin), bytes.data(), region.device.bytes());
    }
  }

 private:
  struct Region {
    const std::byte *begin, *end;
    Tensor device;
    bool written;
  };

  // Views of one call are one piece of memory, or share none.
  ConstTensorView place(ConstTensorView host, bool written) {
    const std::byte* end = host.rows() == 0
                               ? host.data()
                               : host.row_data(host.rows() - 1) + row_bytes(host.dtype(), host.cols());
    auto region = std::find_if(regions_.begin(), regions_.end(),
                               [&](const Region& r) { return host.data() < r.end && r.begin < end; });
    if (region == regions_.end()) {
      const ConstTensorView bytes(host.data(), DType::kU8, {end - host.data()});
      Tensor copy;
      device_.to_device(bytes, copy);
      region = regions_.insert(regions_.end(), {host.data(), end, std::move(copy), written});
    }
    LMD_CHECK(region->begin <= host.data() && end <= region->end, "views overlap in part");
    region->written |= written;
    return {region->device.view().data() + (host.data() - region->begin), host.dtype(), host.shape(),
            host.row_stride_bytes()};
  }

  const Kernels& device_;
  std::list<Region> regions_;
};

class DeviceMirror : public Kernels {
 public:
  explicit DeviceMirror(std::unique_ptr<Kernels> device) : device_(std::move(device)) {}

  std::string name() const override { return device_->name(); }
  Allocator& allocator() const override { return host_allocator(); }
  DType activation_dtype() const override { return device_->activation_dtype(); }
  bool takes_kv_dtype(DType dtype) const override { return device_->takes_kv_dtype(dtype); }
  ThreadPool& threads() const override { return device_->threads(); }

 private:
  // run(device, call) makes the call's arguments and the call itself.
  template <typename Run>
  void mirror(const Run& run) const {
    MirroredCall call(*device_);
    run(*device_, call);
    call.finish();
  }

  std::unique_ptr<PackedWeight> do_pack_weight(std::span<const ConstTensorView> parts, int64_t,
                                               std::span<const int32_t> column_order) const override {
    return device_->pack_weight(parts, column_order);
  }
  void do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.embedding(c.out(out), c.in(ids), table); });
  }
  void do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                 std::optional<ConstTensorView> bias) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.linear(c.out(out), c.in(x), weight, c.in(bias)); });
  }
  void do_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
               const NormOptions& o) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      k.norm(c.out(out), c.in(x), c.in(weight), on_device(o, c));
    });
  }
  void do_add_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                   const NormOptions& o) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      k.add_norm(c.out(out), c.out(residual), c.in(x), c.in(weight), on_device(o, c));
    });
  }
  void do_rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                     ConstTensorView scale, ConstTensorView table_idx) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      k.rope_table(c.out(table), c.in(positions), c.in(inv_freq), c.in(scale), c.in(table_idx));
    });
  }
  void do_rope(TensorView x, ConstTensorView table, RopeOptions options) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.rope(c.out(x), c.in(table), options); });
  }
  void do_kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView key, ConstTensorView value,
                   ConstTensorView slots) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      k.kv_write(c.cache(cache, true), layer, c.in(key), c.in(value), c.in(slots));
    });
  }
  void do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache, const AttentionBatch& batch,
                    const AttentionOptions& options) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      AttentionOptions o = options;
      o.sinks = c.in(options.sinks);
      o.alibi_slopes = c.in(options.alibi_slopes);
      k.attention(c.out(out), c.in(q), c.cache(cache, false),
                  {c.in(batch.query_start), c.in(batch.kv_len), c.in(batch.block_table)}, o);
    });
  }
  void do_linear_glu(TensorView out, TensorView up, ConstTensorView x, const PackedWeight& weight,
                     std::optional<ConstTensorView> bias, Activation activation) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      k.linear_glu(c.out(out), c.out(up), c.in(x), weight, c.in(bias), activation);
    });
  }
  void do_rope_kv_write(TensorView x, ConstTensorView table, RopeOptions options, const KvCacheView& cache,
                        int64_t layer, ConstTensorView v, ConstTensorView slots) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      k.rope_kv_write(c.out(x), c.in(table), options, c.cache(cache, true), layer, c.in(v), c.in(slots));
    });
  }
  void do_glu(TensorView out, ConstTensorView x, Activation activation) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.glu(c.out(out), c.in(x), activation); });
  }
  void do_clamped_glu(TensorView out, ConstTensorView x, float limit) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.clamped_glu(c.out(out), c.in(x), limit); });
  }
  void do_activate(TensorView out, ConstTensorView x, Activation activation) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.activate(c.out(out), c.in(x), activation); });
  }
  void do_add(TensorView out, ConstTensorView a, ConstTensorView b) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.add(c.out(out), c.in(a), c.in(b)); });
  }
  void do_scale(TensorView x, float factor) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.scale(c.out(x), factor); });
  }
  void do_scale_rows(TensorView x, ConstTensorView factors) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.scale_rows(c.out(x), c.in(factors)); });
  }
  void do_gate_rows(TensorView x, ConstTensorView gate) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.gate_rows(c.out(x), c.in(gate)); });
  }
  void do_clamp(TensorView x, float limit) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.clamp(c.out(x), limit); });
  }
  void do_soft_cap(TensorView x, float cap) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.soft_cap(c.out(x), cap); });
  }
  void do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                std::optional<ConstTensorView> correction, const RouteOptions& options) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      k.route(c.out(ids), c.out(weights), c.in(logits), c.in(correction), options);
    });
  }
  void do_sort_by_expert(TensorView expert_start, TensorView row_tokens, TensorView pair_rows,
                         ConstTensorView ids) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      k.sort_by_expert(c.out(expert_start), c.out(row_tokens), c.out(pair_rows), c.in(ids));
    });
  }
  void do_expert_linear(TensorView out, ConstTensorView x, std::span<const PackedWeight* const> experts,
                        ConstTensorView expert_start, std::optional<ConstTensorView> bias) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      k.expert_linear(c.out(out), c.in(x), experts, c.in(expert_start), c.in(bias));
    });
  }
  void do_combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                          ConstTensorView pair_rows) const override {
    mirror([&](const Kernels& k, MirroredCall& c) {
      k.combine_experts(c.out(out), c.in(x), c.in(weights), c.in(pair_rows));
    });
  }
  void do_copy(TensorView out, ConstTensorView x) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.copy(c.out(out), c.in(x)); });
  }
  void do_gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const override {
    mirror([&](const Kernels& k, MirroredCall& c) { k.gather_rows(c.out(out), c.in(x), c.in(rows)); });
  }

  static NormOptions on_device(NormOptions o, MirroredCall& call) {
    o.bias = call.in(o.bias);
    return o;
  }

  std::unique_ptr<Kernels> device_;
};

}  // namespace lmdeploy
