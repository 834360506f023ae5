#include "lmdeploy/formats/turbomind/workspace_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/derived_checkpoint.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/turbomind/workspace_files.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

/// Which dimension of a stored [in, out] matrix the ranks share.
enum class Split { kNone, kRows, kColumns, kQkv };

/// A matrix or vector as it should be in the files. A vector is one row.
struct Stored {
  std::string name;  // "layers.0.attention.w_qkv"
  std::string kind;  // ".weight", ".bias"
  int64_t rows = 1, cols = 1;
  Split split = Split::kNone;
  bool turned = false;    // stored as [in, out]
  int64_t used_rows = 0;  // of an embedding: the rest pads the vocabulary; 0: all
};

/// A rectangle of one rank's matrix, and its place in the whole one.
struct Block {
  size_t rank = 0;
  int64_t from_row = 0, from_col = 0, rows = 0, cols = 0, to_row = 0, to_col = 0;
};

/// A rank's part: one tensor of the files, or three.
struct Piece {
  size_t weight = 0, scales = 0, zeros = 0;
};

// The columns [begin, begin + size) of the whole, dealt to the ranks in equal shares; `local`: where a
// rank's share begins. More ranks than heads hold copies of them.
void add_columns(const Stored& t, size_t ranks, int64_t begin, int64_t size, int64_t heads, int64_t local,
                 std::vector<Block>& blocks) {
  const auto count = static_cast<int64_t>(ranks);
  const int64_t copies = std::max<int64_t>(1, count / heads), share = size * copies / count;
  for (int64_t rank = 0; rank < count; rank += copies)
    blocks.push_back({static_cast<size_t>(rank), 0, local, t.rows, share, 0, begin + rank / copies * share});
}

std::vector<Block> blocks_of(const Stored& t, size_t ranks, const WorkspaceModel& m) {
  std::vector<Block> blocks;
  const auto count = static_cast<int64_t>(ranks);
  const int64_t rows = t.rows / count;
  switch (t.split) {
    case Split::kNone:
      return {{0, 0, 0, t.rows, t.cols, 0, 0}};
    case Split::kRows:
      for (size_t rank = 0; rank < ranks; ++rank)
        blocks.push_back({rank, 0, 0, rows, t.cols, static_cast<int64_t>(rank) * rows, 0});
      return blocks;
    case Split::kColumns:
      add_columns(t, ranks, 0, t.cols, count, 0, blocks);
      return blocks;
    case Split::kQkv:
      break;
  }
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  const int64_t local_kv = std::max(kv / count, m.head_dim);
  add_columns(t, ranks, 0, q, m.heads, 0, blocks);
  add_columns(t, ranks, q, kv, m.kv_heads, q / count, blocks);
  add_columns(t, ranks, q + kv, kv, m.kv_heads, q / count + local_kv, blocks);
  return blocks;
}

Shape piece_shape(const Stored& t, size_t ranks, const WorkspaceModel& m) {
  const auto count = static_cast<int64_t>(ranks);
  if (t.split == Split::kRows) return {t.rows / count, t.cols};
  if (t.split == Split::kColumns) return {t.rows, t.cols / count};
  if (t.split == Split::kNone) return {t.rows, t.cols};
  return {t.rows, (m.heads / count + 2 * std::max<int64_t>(m.kv_heads / count, 1)) * m.head_dim};
}

/// Rows of q and k are stored for rotary pairs (2j, 2j + 1); they come out as halves (j, j + r/2).
struct RotaryRows {
  int64_t count = 0;  // of q and k together; 0: of another tensor
  int64_t head_dim = 1, rotary_dim = 0;

  int64_t place(int64_t row) const {
    const int64_t within = row % head_dim;
    if (row >= count || within >= rotary_dim) return row;
    return row - within + within % 2 * (rotary_dim / 2) + within / 2;
  }
};

// out[place(to_col + j)][to_row + i] = piece[from_row + i][from_col + j], in tiles that stay in the cache.
template <typename T>
void copy_turned(ConstTensorView piece, const Block& b, const RotaryRows& rotary, T* out, int64_t out_cols) {
  constexpr int64_t kTile = 32;
  for (int64_t i0 = 0; i0 < b.rows; i0 += kTile)
    for (int64_t j0 = 0; j0 < b.cols; j0 += kTile)
      for (int64_t j = j0; j < std::min(j0 + kTile, b.cols); ++j) {
        T* row = out + rotary.place(b.to_col + j) * out_cols + b.to_row;
        for (int64_t i = i0; i < std::min(i0 + kTile, b.rows); ++i)
          row[i] = piece.row<T>(b.from_row + i)[b.from_col + j];
      }
}

template <typename T>
void copy_plain(ConstTensorView piece, const Block& b, T* out, int64_t out_cols) {
  for (int64_t i = 0; i < b.rows; ++i)
    std::memcpy(out + (b.to_row + i) * out_cols + b.to_col, piece.row<T>(b.from_row + i) + b.from_col,
                static_cast<size_t>(b.cols) * sizeof(T));
}

// (nibble - zero) * scale: eight neighbouring outputs in a word, the first one lowest.
Tensor dequantized(const Checkpoint& files, const Piece& piece, int64_t group_size) {
  const ConstTensorView words = files.tensor(piece.weight), scales = files.tensor(piece.scales),
                        zeros = files.tensor(piece.zeros);
  Tensor out(DType::kF32, {words.rows(), words.cols() * 8});
  for (int64_t i = 0; i < words.rows(); ++i) {
    const int64_t group = i / group_size;
    const auto* word = words.row<uint32_t>(i);
    auto* row = out.view().row<float>(i);
    for (int64_t j = 0; j < out.dim(1); ++j) {
      const uint32_t nibble = (word[j / 8] >> (j % 8 * 4)) & 15;
      row[j] = static_cast<float>((nibble - zeros.at(group, j)) * scales.at(group, j));
    }
  }
  return out;
}

// A zero point is one of the 16 values, or one past them where files count from 1.
void check_zeros(const Checkpoint& files, size_t index) {
  const ConstTensorView zeros = files.tensor(index);
  for (int64_t i = 0; i < zeros.rows(); ++i)
    for (int64_t j = 0; j < zeros.cols(); ++j)
      if (const double zero = zeros.at(i, j); !(zero >= 0 && zero <= 16 && zero == std::trunc(zero)))
        throw Error(ErrorCode::kInvalidData, cat("read ", files.tensors()[index].file, ": zero point ", zero,
                                                 " in group ", i, ", expected an integer from 0 to 16"));
}

/// How a tensor is put together.
struct Assembly {
  Stored stored;
  std::vector<Piece> pieces;
  std::vector<Block> blocks;
  RotaryRows rotary;
  int64_t group_size = 0;  // 0: the pieces are plain
};

void assemble(const Assembly& a, const Checkpoint& files, std::byte* out) {
  const int64_t out_cols = a.stored.turned ? a.stored.rows : a.stored.cols;
  for (size_t rank = 0; rank < a.pieces.size(); ++rank) {
    Tensor wide;
    ConstTensorView piece = files.tensor(a.pieces[rank].weight);
    if (a.group_size > 0) {
      check_zeros(files, a.pieces[rank].zeros);
      piece = wide = dequantized(files, a.pieces[rank], a.group_size);
    }
    for (const Block& block : a.blocks) {
      if (block.rank != rank) continue;
      if (a.group_size > 0)
        copy_turned(piece, block, a.rotary, reinterpret_cast<float*>(out), out_cols);
      else if (a.stored.turned)
        copy_turned(piece, block, a.rotary, reinterpret_cast<uint16_t*>(out), out_cols);
      else
        copy_plain(piece, block, reinterpret_cast<uint16_t*>(out), out_cols);
    }
  }
}

class WorkspaceCheckpoint : public DerivedCheckpoint {
 public:
  /// `files` is `owner`.
  WorkspaceCheckpoint(WorkspaceFiles& files, std::unique_ptr<Checkpoint> owner, const WorkspacePaths& paths,
                      const WorkspaceConfig& config)
      : DerivedCheckpoint(std::move(owner)), stored_(files), m_(config.model) {
    config_path_ = settings_path_ = paths.config;
    config_ = config.hub;
    files_.push_back(paths.config);
    engine_settings_ = config.settings;
    const fs::path generation = fs::path(paths.tokenizer) / "generation_config.json";
    if (fs::exists(generation)) generation_config_ = read_json_file(generation.string());
    add_ends();
    for (size_t layer = 0; layer < m_.inter.size(); ++layer) add_layer(layer);
    check_unclaimed();
  }

 private:
  void add_ends() {
    const Split embed = m_.split_ends ? Split::kColumns : Split::kNone,
                output = m_.split_ends ? Split::kRows : Split::kNone;
    add({"tok_embeddings", ".weight", m_.embedding_rows, m_.hidden, embed, false, m_.vocab});
    add({"norm", ".weight", 1, m_.hidden});
    add({"output", ".weight", m_.embedding_rows, m_.hidden, output, false, m_.vocab});
  }

  void add_layer(size_t layer) {
    const std::string prefix = cat("layers.", layer, ".");
    add({prefix + "attention_norm", ".weight", 1, m_.hidden});
    if (m_.latent.kv_rank > 0)
      add_latent_attention(prefix + "attention.");
    else
      add_attention(prefix + "attention.");
    add({prefix + "ffn_norm", ".weight", 1, m_.hidden});
    if (m_.inter[layer] > 0) add_mlp(prefix + "feed_forward.", m_.inter[layer]);
    if (m_.experts[layer] > 0) add_experts(prefix + "moe_ffn.", layer);
  }

  void add_attention(const std::string& prefix) {
    const int64_t q = m_.heads * m_.head_dim, qkv = q + 2 * m_.kv_heads * m_.head_dim;
    add({prefix + "w_qkv", ".weight", m_.hidden, qkv, Split::kQkv, true});
    add({prefix + "wo", ".weight", q, m_.hidden, Split::kRows, true});
    if (!m_.attention_bias) return;
    add({prefix + "w_qkv", ".bias", 1, qkv, Split::kQkv, true});
    add({prefix + "wo", ".bias", 1, m_.hidden});
  }

  void add_latent_attention(const std::string& prefix) {
    const WorkspaceLatent& latent = m_.latent;
    const int64_t q = m_.heads * m_.head_dim;
    if (latent.q_rank > 0) {
      add({prefix + "q_a_proj", ".weight", m_.hidden, latent.q_rank, Split::kNone, true});
      add({prefix + "q_a_layernorm", ".weight", 1, latent.q_rank});
      add({prefix + "q_b_proj", ".weight", latent.q_rank, q, Split::kColumns, true});
    } else {
      add({prefix + "q_proj", ".weight", m_.hidden, q, Split::kColumns, true});
    }
    add({prefix + "kv_a_proj", ".weight", m_.hidden, latent.kv_rank + latent.rope_dim, Split::kNone, true});
    add({prefix + "kv_a_layernorm", ".weight", 1, latent.kv_rank});
    const int64_t keys_values = m_.heads * (latent.nope_dim + latent.value_dim);
    add({prefix + "kv_b_proj", ".weight", latent.kv_rank, keys_values, Split::kColumns, true});
    add({prefix + "wo", ".weight", m_.heads * latent.value_dim, m_.hidden, Split::kRows, true});
  }

  void add_mlp(const std::string& prefix, int64_t inter) {
    add({prefix + "w1", ".weight", m_.hidden, inter, Split::kColumns, true});
    add({prefix + "w3", ".weight", m_.hidden, inter, Split::kColumns, true});
    add({prefix + "w2", ".weight", inter, m_.hidden, Split::kRows, true});
  }

  void add_experts(const std::string& prefix, size_t layer) {
    add({prefix + "gate", ".weight", m_.hidden, m_.experts[layer], Split::kNone, true});
    for (int64_t e = 0; e < m_.experts[layer]; ++e) add_mlp(cat(prefix, "experts.", e, "."), m_.expert_inter);
    if (m_.shared_gate && m_.inter[layer] > 0)
      add({prefix + "shared_gate", ".weight", m_.hidden, 1, Split::kNone, true});
  }

  // "NAME.RANK.weight", or "NAME.weight" of what is not split.
  std::string file_name(const Stored& t, const std::string& kind, size_t rank) const {
    const std::string numbered = cat(t.name, ".", rank, kind), plain = t.name + kind;
    if (rank > 0 || stored_.has(numbered)) return numbered;
    return t.split == Split::kNone || stored_.has(plain) ? plain : numbered;
  }

  // A linear is stored with 4 bits if that file is there.
  bool has_four_bits(const Stored& t) const {
    return t.kind == ".weight" && t.turned && m_.group_size > 0 &&
           (stored_.has(cat(t.name, ".0.qweight")) || stored_.has(t.name + ".qweight"));
  }

  // Over how many files the tensor is spread: as many as the config says, or one for all. Of what is not
  // split each rank may have a copy.
  size_t count_ranks(const Stored& t, const std::string& kind) const {
    size_t count = 1;
    while (stored_.has(cat(t.name, ".", count, kind))) ++count;
    if (t.split == Split::kNone) return count;
    if (std::find(m_.ranks.begin(), m_.ranks.end(), static_cast<int64_t>(count)) == m_.ranks.end())
      throw Error(ErrorCode::kInvalidData, cat("open ", path_, ": there are ", count, " files ", t.name, ".N",
                                               kind, ", but ", config_path_, " says ", m_.ranks.back(),
                                               " ranks; the conversion or the copy may be incomplete"));
    check_divisible(t, static_cast<int64_t>(count));
    return count;
  }

  void check_divisible(const Stored& t, int64_t count) const {
    const int64_t kv = std::max(m_.kv_heads, count) % std::min(m_.kv_heads, count);
    const int64_t rest = t.split == Split::kRows      ? t.rows % count
                         : t.split == Split::kColumns ? t.cols % count
                                                      : m_.heads % count + kv;
    if (rest != 0)
      throw Error(ErrorCode::kInvalidData, cat(config_path_, ": ", t.name, " [", t.rows, ", ", t.cols,
                                               "] cannot be split over ", count, " ranks"));
  }

  Piece claim(const Stored& t, size_t rank, const Shape& shape, const Shape& other) {
    if (!has_four_bits(t)) return {stored_.claim(file_name(t, t.kind, rank), m_.dtype, shape, other), 0, 0};
    if (shape[1] % 8 != 0 || shape[0] % m_.group_size != 0)
      throw Error(ErrorCode::kInvalidData, cat(config_path_, ": ", t.name, " ", shape,
                                               " cannot have 4 bits in groups of ", m_.group_size));
    const Shape groups = {shape[0] / m_.group_size, shape[1]};
    return {stored_.claim(file_name(t, ".qweight", rank), DType::kI32, {shape[0], shape[1] / 8}),
            stored_.claim(file_name(t, ".scales", rank), DType::kF16, groups),
            stored_.claim(file_name(t, ".zeros", rank), DType::kF16, groups)};
  }

  void add(const Stored& t) {
    Assembly a = {t, {}, {}, {}, has_four_bits(t) ? m_.group_size : 0};
    if (t.split == Split::kQkv)
      a.rotary = {(m_.heads + m_.kv_heads) * m_.head_dim, m_.head_dim, m_.rotary_dim};
    const size_t ranks = count_ranks(t, a.group_size > 0 ? ".qweight" : t.kind);
    const Shape shape = piece_shape(t, ranks, m_);
    for (size_t rank = 0; rank < ranks; ++rank)
      a.pieces.push_back(claim(t, rank, shape, other_shape(t, shape)));
    a.blocks = blocks_of(t, ranks, m_);
    if (is_padded(a)) narrow_to_values(a);
    if (t.used_rows > 0) keep_rows(t.used_rows, a);
    add_assembly(std::move(a));
  }

  // The other shape that a file may have. The output of latent attention: heads may be as wide as those of q
  // there, the rest of each being zeros. Ends of one rank in a config that says more: without padding.
  Shape other_shape(const Stored& t, const Shape& shape) const {
    if (t.used_rows > 0 && t.split == Split::kNone) return {t.used_rows, shape[1]};
    if (m_.latent.kv_rank == 0 || !t.name.ends_with("attention.wo")) return {};
    return {shape[0] / m_.latent.value_dim * m_.head_dim, shape[1]};
  }
  bool is_padded(const Assembly& a) const {
    const Shape& found = stored_.tensors()[a.pieces[0].weight].shape;
    return a.stored.name.ends_with("attention.wo") && a.group_size == 0 &&
           !(found == piece_shape(a.stored, a.pieces.size(), m_));
  }
  void narrow_to_values(Assembly& a) const {
    a.blocks.clear();
    const int64_t per_rank = m_.heads / static_cast<int64_t>(a.pieces.size());
    for (int64_t head = 0; head < m_.heads; ++head)
      a.blocks.push_back({static_cast<size_t>(head / per_rank), head % per_rank * m_.head_dim, 0,
                          m_.latent.value_dim, a.stored.cols, head * m_.latent.value_dim, 0});
  }

  static void keep_rows(int64_t rows, Assembly& a) {
    a.stored.rows = rows;
    for (Block& block : a.blocks) block.rows = std::clamp<int64_t>(rows - block.to_row, 0, block.rows);
  }

  void add_assembly(Assembly a) {
    const Stored& t = a.stored;
    Recipe recipe;
    recipe.info = stored_.tensors()[a.pieces[0].weight];
    recipe.info.name = t.name + t.kind;
    recipe.info.dtype = a.group_size > 0 ? DType::kF32 : m_.dtype;
    recipe.info.shape = t.turned ? Shape{t.cols, t.rows} : Shape{t.rows, t.cols};
    if (t.rows == 1) recipe.info.shape = {t.cols};
    for (const Piece& piece : a.pieces) {
      recipe.sources.push_back(piece.weight);
      if (a.group_size > 0) recipe.sources.insert(recipe.sources.end(), {piece.scales, piece.zeros});
    }
    recipe.make = [a = std::move(a)](const Checkpoint& stored, std::byte* out) { assemble(a, stored, out); };
    add_computed(std::move(recipe));
  }

  void check_unclaimed() {
    for (const std::string& name : stored_.unclaimed()) {
      // Without quant_policy they are not used; with it, the config has been refused.
      if (name.find(".past_kv_scale.") != std::string::npos) continue;
      const bool adapter = name.find(".lora_") != std::string::npos;
      throw Error(
          adapter ? ErrorCode::kUnsupported : ErrorCode::kInvalidData,
          cat("open ", path_, ": weight file ", quote(name), " is none of the model that ", config_path_,
              " describes", adapter ? "; adapters are not supported: load the original checkpoint" : ""));
    }
  }

  WorkspaceFiles& stored_;
  const WorkspaceModel m_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_workspace(const std::string& path, const WorkspacePaths& paths,
                                           const WorkspaceConfig& config) {
  auto owner = std::make_unique<WorkspaceFiles>(path, paths.weights);
  WorkspaceFiles& files = *owner;
  return std::make_unique<WorkspaceCheckpoint>(files, std::move(owner), paths, config);
}

}  // namespace lmdeploy
