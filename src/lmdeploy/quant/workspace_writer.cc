#include "lmdeploy/quant/workspace_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/half.h"
#include "lmdeploy/formats/output_file.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/models/decoder_weights.h"
#include "lmdeploy/models/stored_weight.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

DType written_dtype(const Checkpoint& checkpoint, const ModelPlan& model, const std::string& asked) {
  if (asked == "float16") return DType::kF16;
  if (asked == "bfloat16") return DType::kBF16;
  const ConfigReader cfg(checkpoint.config(), checkpoint.config_path());
  const std::string said = cfg.get("torch_dtype", cfg.get("dtype", "").c_str());
  if (!said.empty()) return said == "bfloat16" ? DType::kBF16 : DType::kF16;
  for (const SlotPlan& slot : model.load.slots)  // Qwen's first configs do not say
    if (slot.slot == Slot::kEmbed && checkpoint.tensors()[slot.parts[0].tensors[0]].dtype == DType::kBF16)
      return DType::kBF16;
  return DType::kF16;
}

/// Rounds rows to 16 bits.
class Rounder {
 public:
  explicit Rounder(DType dtype) : dtype_(dtype) {}

  void row(const float* in, uint16_t* out, int64_t count, std::string_view name) const {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = dtype_ == DType::kBF16 ? to_bf16(in[i]).bits : to_f16(in[i]).bits;
      const bool overflows = dtype_ == DType::kF16 && std::isfinite(in[i]) && (out[i] & 0x7C00) == 0x7C00;
      if (overflows)
        throw Error(ErrorCode::kInvalidData, cat("convert: tensor ", quote(name), " holds ", in[i],
                                                 ", more than float16 can; use --dtype bfloat16"));
    }
  }

 private:
  DType dtype_;
};

class Writer {
 public:
  Writer(std::string folder, const Checkpoint& checkpoint, const ModelPlan& model,
         const ConvertRequest& request)
      : folder_(std::move(folder)),
        checkpoint_(checkpoint),
        model_(model),
        spec_(model.spec),
        request_(request),
        rounder_(written_dtype(checkpoint, model, request.dtype)) {
    for (const TensorInfo& info : checkpoint.tensors()) total_ += bytes_of(info);
  }

  void write() {
    check_ranks();
    for (const SlotPlan& slot : model_.load.slots) {
      write_slot(slot);
      for (const PartPlan& part : slot.parts)
        for (const size_t index : part.tensors) finish(index);
    }
    if (spec_.qkv_bias || spec_.o_bias)
      for (int64_t layer = 0; layer < spec_.num_layers; ++layer) write_missing_biases(layer);
  }

 private:
  static int64_t bytes_of(const TensorInfo& info) { return row_bytes(info.dtype, info.shape.numel()); }

  void finish(size_t index) {
    checkpoint_.drop(index);
    done_ += bytes_of(checkpoint_.tensors()[index]);
    if (request_.progress) request_.progress(done_, total_);
  }

  void check_ranks() const {
    const std::pair<const char*, int64_t> shares[] = {{"attention heads", spec_.num_heads},
                                                      {"key-value heads", spec_.num_kv_heads},
                                                      {"inner size", spec_.intermediate_size}};
    for (const auto& [what, count] : shares)
      if (count % request_.tp != 0)
        throw Error(ErrorCode::kInvalidArgument,
                    cat("convert: --tp ", request_.tp, " does not divide the model's ", what, ", ", count,
                        "; use a smaller one"));
  }

  void write_slot(const SlotPlan& slot) {
    const std::string layer = cat("layers.", slot.layer, ".");
    switch (slot.slot) {
      case Slot::kEmbed:
        write_end("tok_embeddings.weight", slot);
        if (spec_.tied_embedding) write_end("output.weight", slot);
        return;
      case Slot::kLmHead:
        return write_end("output.weight", slot);
      case Slot::kFinalNorm:
        return write_file("norm.weight", vector(slot));
      case Slot::kAttentionNorm:
        return write_file(layer + "attention_norm.weight", vector(slot));
      case Slot::kMlpNorm:
        return write_file(layer + "ffn_norm.weight", vector(slot));
      case Slot::kQkv:
        return write_columns(layer + "attention.w_qkv", paired(matrix(slot)), qkv_shares());
      case Slot::kQkvBias:
        return write_vectors(layer + "attention.w_qkv", paired(vector(slot)), qkv_shares());
      case Slot::kO:
        return write_rows(layer + "attention.wo", matrix(slot));
      case Slot::kOBias:
        return write_copies(layer + "attention.wo", vector(slot));
      case Slot::kUp:
        return write_gate_and_up(layer + "feed_forward.", matrix(slot));
      case Slot::kDown:
        return write_rows(layer + "feed_forward.w2", matrix(slot));
      default:
        LMD_CHECK(false, "no file for slot ", static_cast<int>(slot.slot));
    }
  }

  // [rows, cols] in 16 bits, as the slot has them: [out, in].
  Tensor matrix(const SlotPlan& slot) const {
    std::vector<MatrixPiece> pieces;
    int64_t rows = 0;
    for (const PartPlan& part : slot.parts) {
      const ColumnOrder& order = checkpoint_.tensors()[part.tensors[0]].column_order;
      pieces.push_back(take_matrix(checkpoint_.tensor(part.tensors[0]),
                                   order ? std::span<const int32_t>(*order) : std::span<const int32_t>(),
                                   *part.rule, spec_, 0));
      undo_column_order(pieces.back());
      rows += pieces.back().view.rows();
    }
    const int64_t cols = pieces[0].view.cols();
    Tensor out(DType::kF16, {rows, cols});
    std::vector<float> wide(static_cast<size_t>(cols));
    int64_t row = 0;
    for (const MatrixPiece& piece : pieces)
      for (int64_t r = 0; r < piece.view.rows(); ++r) {
        dequantize(piece.view.dtype(), piece.view.row_data(r), wide.data(), cols);
        rounder_.row(wide.data(), out.view().row<uint16_t>(row++), cols, slot.parts[0].rule->name);
      }
    return out;
  }

  // The same of a vector: [n, 1].
  Tensor vector(const SlotPlan& slot) const {
    std::vector<float> all;
    for (const PartPlan& part : slot.parts) {
      const std::vector<float> values = take_vector(checkpoint_.tensor(part.tensors[0]), *part.rule, spec_);
      all.insert(all.end(), values.begin(), values.end());
    }
    const auto count = static_cast<int64_t>(all.size());
    Tensor out(DType::kF16, {count, 1});
    rounder_.row(all.data(), out.view().row<uint16_t>(0), count, slot.parts[0].rule->name);
    return out;
  }

  // Rows of q and k from halves to neighbouring pairs.
  Tensor paired(Tensor rows) const {
    if (spec_.rope.interleaved) return rows;
    const int64_t dim = spec_.head_dim, turned = spec_.q_size() + spec_.kv_size();
    Tensor out(rows.dtype(), rows.shape());
    const auto bytes = static_cast<size_t>(row_bytes(rows.dtype(), rows.dim(1)));
    for (int64_t r = 0; r < rows.dim(0); ++r) {
      const int64_t within = r % dim;
      const int64_t from = r < turned ? r - within + within % 2 * (dim / 2) + within / 2 : r;
      std::memcpy(out.view().row_data(r), rows.view().row_data(from), bytes);
    }
    return out;
  }

  /// Rows [begin, begin + count).
  struct Range {
    int64_t begin = 0, count = 0;
  };
  // For each rank the rows of its q, k and v heads.
  std::vector<std::vector<Range>> qkv_shares() const {
    const int64_t q = spec_.q_size() / request_.tp, kv = spec_.kv_size() / request_.tp;
    std::vector<std::vector<Range>> shares;
    for (int64_t rank = 0; rank < request_.tp; ++rank)
      shares.push_back({{rank * q, q},
                        {spec_.q_size() + rank * kv, kv},
                        {spec_.q_size() + spec_.kv_size() + rank * kv, kv}});
    return shares;
  }
  std::vector<std::vector<Range>> even_shares(int64_t begin, int64_t count) const {
    const int64_t share = count / request_.tp;
    std::vector<std::vector<Range>> shares;
    for (int64_t rank = 0; rank < request_.tp; ++rank) shares.push_back({{begin + rank * share, share}});
    return shares;
  }

  void write_gate_and_up(const std::string& prefix, const Tensor& rows) {
    const int64_t inter = spec_.intermediate_size;
    write_columns(prefix + "w1", rows, even_shares(0, inter));
    write_columns(prefix + "w3", rows, even_shares(inter, inter));
  }

  // Each rank's rows, turned over: [in, out of the rank].
  void write_columns(const std::string& name, const Tensor& rows,
                     const std::vector<std::vector<Range>>& shares) {
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      int64_t count = 0;
      for (const Range& range : shares[rank]) count += range.count;
      Tensor out(DType::kF16, {rows.dim(1), count});
      int64_t to = 0;
      for (const Range& range : shares[rank]) {
        turn_over(rows, range, out, to);
        to += range.count;
      }
      write_file(cat(name, ".", rank, ".weight"), out);
    }
  }

  // out[c][to + r] = rows[begin + r][c], in tiles that stay in the cache.
  static void turn_over(const Tensor& rows, const Range& range, const Tensor& out, int64_t to) {
    constexpr int64_t kTile = 32;
    for (int64_t r0 = 0; r0 < range.count; r0 += kTile)
      for (int64_t c0 = 0; c0 < rows.dim(1); c0 += kTile)
        for (int64_t c = c0; c < std::min(c0 + kTile, rows.dim(1)); ++c)
          for (int64_t r = r0; r < std::min(r0 + kTile, range.count); ++r)
            out.view().row<uint16_t>(c)[to + r] = rows.view().row<uint16_t>(range.begin + r)[c];
  }

  // The inputs are split: each rank's columns, turned over.
  void write_rows(const std::string& name, const Tensor& rows) {
    Tensor turned(DType::kF16, {rows.dim(1), rows.dim(0)});
    turn_over(rows, {0, rows.dim(0)}, turned, 0);
    const int64_t share = rows.dim(1) / request_.tp;
    for (int64_t rank = 0; rank < request_.tp; ++rank)
      write_file(cat(name, ".", rank, ".weight"), turned.view().slice_rows(rank * share, share));
  }

  void write_vectors(const std::string& name, const Tensor& values,
                     const std::vector<std::vector<Range>>& shares) {
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      OutputFile file(path(cat(name, ".", rank, ".bias")));
      for (const Range& range : shares[rank])
        file.write(ConstTensorView(values).slice_rows(range.begin, range.count));
      file.commit();
    }
  }
  void write_copies(const std::string& name, const Tensor& values) {
    for (int64_t rank = 0; rank < request_.tp; ++rank) write_file(cat(name, ".", rank, ".bias"), values);
  }

  // Both biases exist or none: what the model lacks is zero.
  void write_missing_biases(int64_t layer) {
    const std::string prefix = cat("layers.", layer, ".attention.");
    if (!spec_.o_bias) write_copies(prefix + "wo", zeros(spec_.hidden_size));
    if (!spec_.qkv_bias)
      write_vectors(prefix + "w_qkv", zeros(spec_.q_size() + 2 * spec_.kv_size()), qkv_shares());
  }
  static Tensor zeros(int64_t count) {
    Tensor out(DType::kF16, {count, 1});
    std::memset(out.view().data(), 0, out.bytes());
    return out;
  }

  // Padded with rows of zeros to a multiple of the ranks.
  void write_end(const std::string& name, const SlotPlan& slot) {
    const Tensor rows = matrix(slot);
    const int64_t padding = (request_.tp - rows.dim(0) % request_.tp) % request_.tp;
    OutputFile file(path(name));
    file.write(ConstTensorView(rows));
    file.write(std::string(static_cast<size_t>(padding * row_bytes(DType::kF16, rows.dim(1))), '\0'));
    file.commit();
  }

  std::string path(const std::string& name) const { return (fs::path(folder_) / name).string(); }
  void write_file(const std::string& name, ConstTensorView values) {
    OutputFile file(path(name));
    file.write(values);
    file.commit();
  }

  std::string folder_;
  const Checkpoint& checkpoint_;
  const ModelPlan& model_;
  const DecoderSpec& spec_;
  const ConvertRequest& request_;
  Rounder rounder_;
  int64_t done_ = 0, total_ = 0;
};

// As config.ini has it, before scaling.
int64_t trained_length(const DecoderSpec& spec) {
  return spec.rope.kind == RopeSpec::Kind::kDefault ? spec.max_positions : spec.rope.original_max_positions;
}

// What config.ini has no key for.
std::string unusual_attention(const DecoderSpec& s) {
  const auto usual_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)));
  if (s.has_latent()) return "latent attention";
  if (s.qk_norm != QkNorm::kNone) return "norms of q and k";
  if (s.hidden_size != s.q_size()) return "heads that are not hidden_size wide together";
  if (s.attention_scale != usual_scale) return "an attention scale of its own";
  if (s.qkv_clip > 0 || s.attention_soft_cap > 0 || s.sinks) return "clipped, capped or sinking attention";
  if (s.alibi != Alibi::kNone) return "ALiBi";
  for (const LayerSpec& layer : s.layers) {
    if (layer.window > 0) return "a sliding window";
    if (!layer.rope || layer.local_rope) return "layers with another rope";
  }
  return "";
}

std::string unusual_rope(const DecoderSpec& s) {
  using Kind = RopeSpec::Kind;
  const bool known =
      s.rope.kind == Kind::kDefault || s.rope.kind == Kind::kLinear || s.rope.kind == Kind::kDynamicNtk;
  if (!known || !s.rope.freq_factors.empty()) return "a rope scaling that it has no key for";
  if (s.rope.rotary_dim != s.head_dim) return "partial rope";
  // Both go by one key there.
  if (s.logn_length > 0 && s.logn_length != trained_length(s)) return "a log-n length of its own";
  return "";
}

std::string unusual_rest(const DecoderSpec& s) {
  if (s.norm != NormKind::kRms || s.norm_offset != 0 || s.norm_bias || !s.input_norms || s.output_norms)
    return "other norms than RMSNorm before each block";
  if (s.parallel || s.learned_positions) return "another order of blocks, or learned positions";
  if (s.gives_score) return "a head that gives a score";
  if (s.has_experts()) return "experts";
  if (!s.gated || s.activation != Activation::kSilu || s.clamped_glu > 0 || s.mlp_bias) return "another MLP";
  if (s.head_bias || s.embedding_scale != 1 || s.residual_scale != 1 || s.logit_scale != 1 ||
      s.logit_soft_cap != 0)
    return "scales or a bias that it has no key for";
  return "";
}

std::string hub_format(const Checkpoint& checkpoint) {
  const WeightFormat format = checkpoint.weight_format();
  if (format == WeightFormat::kHf || format == WeightFormat::kLlama) return "";
  return cat("weights of the format ", format);
}

int first_id(const Checkpoint& checkpoint, const char* key, int fallback) {
  const std::vector<int> ids = token_ids_from(checkpoint.config(), key, checkpoint.config_path());
  return ids.empty() ? fallback : ids[0];
}

// The shortest text that reads back as this number, always with a point or an exponent.
template <typename T>
std::string number(T value) {
  char buffer[64];
  const auto end = std::to_chars(std::begin(buffer), std::end(buffer), value).ptr;
  const std::string text(std::begin(buffer), end);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// What describes the converted weights.
std::string model_keys(const Checkpoint& checkpoint, const ModelPlan& model, const ConvertRequest& request) {
  const DecoderSpec& s = model.spec;
  const bool bf16 = written_dtype(checkpoint, model, request.dtype) == DType::kBF16;
  return cat("head_num = ", s.num_heads, "\nkv_head_num = ", s.num_kv_heads, "\nvocab_size = ", s.vocab_size,
             "\nnum_layer = ", s.num_layers, "\ninter_size = ", s.intermediate_size,
             "\nnorm_eps = ", number(s.norm_eps), "\nattn_bias = ", s.qkv_bias || s.o_bias ? 1 : 0,
             "\nstart_id = ", first_id(checkpoint, "bos_token_id", 1),
             "\nend_id = ", first_id(checkpoint, "eos_token_id", 2),
             "\nweight_type = ", bf16 ? "bf16" : "fp16", "\nrotary_embedding = ", s.head_dim,
             "\nrope_theta = ", number(s.rope.theta), "\nsize_per_head = ", s.head_dim,
             "\ngroup_size = 0\nmax_position_embeddings = ", trained_length(s),
             "\nuse_dynamic_ntk = ", s.rope.kind == RopeSpec::Kind::kDynamicNtk ? 1 : 0, "\n");
}

}  // namespace

std::string own_layout_reason(const Checkpoint& checkpoint, const ModelPlan& model) {
  for (const std::string& reason : {hub_format(checkpoint), unusual_attention(model.spec),
                                    unusual_rope(model.spec), unusual_rest(model.spec)})
    if (!reason.empty()) return reason;
  return "";
}

void write_workspace_weights(const std::string& folder, const Checkpoint& checkpoint, const ModelPlan& model,
                             const ConvertRequest& request) {
  Writer(folder, checkpoint, model, request).write();
}

void write_workspace_config(const std::string& folder, const Checkpoint& checkpoint, const ModelPlan& model,
                            const ConvertRequest& request, bool own_layout) {
  const DecoderSpec& s = model.spec;
  const bool scaled = s.rope.kind == RopeSpec::Kind::kLinear || s.rope.kind == RopeSpec::Kind::kDynamicNtk;
  std::string text =
      cat("[llama]\nmodel_name = ", request.template_name, "\ntensor_para_size = ", request.tp, "\n");
  if (own_layout)
    text += "; The model is described by the files beside this one.\nweight_layout = 1\n";
  else
    text += model_keys(checkpoint, model, request);
  text +=
      cat("session_len = ", s.max_positions + 8,
          "\nmax_batch_size = 64\nmax_context_token_num = 1\nstep_length = 1\ncache_max_entry_count = 0.8"
          "\ncache_block_seq_len = 64\ncache_chunk_size = -1\nenable_prefix_caching = False"
          "\nnum_tokens_per_iter = 0\nmax_prefill_iters = 1\nextra_tokens_per_iter = 0\nuse_context_fmha = 1"
          "\nquant_policy = 0\nrope_scaling_factor = ",
          number(!own_layout && scaled ? s.rope.factor : 0.0),
          "\nuse_logn_attn = ", !own_layout && s.logn_length > 0 ? 1 : 0, "\n");
  write_text_file((fs::path(folder) / "config.ini").string(), text);
}

int64_t quantized_group_size(const Checkpoint& checkpoint) {
  if (!checkpoint.config_path().ends_with(".json")) return 0;
  const Json stored = read_json_file(checkpoint.config_path());  // config() has it no more
  const ConfigReader cfg(stored, checkpoint.config_path());
  if (!cfg.has("quantization_config")) return 0;
  const ConfigReader quantization = cfg.object("quantization_config");
  return quantization.get(quantization.has("q_group_size") ? "q_group_size" : "group_size", int64_t{0});
}

void write_text_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace lmdeploy
