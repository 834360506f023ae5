// Checkpoints in Meta's form: params.json and consolidated.NN.pth, one file per rank of a tensor-parallel
// run.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/formats/checkpoint_kinds.h"
#include "lmdeploy/formats/derived_checkpoint.h"
#include "lmdeploy/formats/meta_config.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/torch/torch_file.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

// How a tensor is spread over the files.
enum class Split {
  kSame,       // every file has all of it
  kRows,       // each has some rows
  kColumns,    // each has some columns
  kEmbedding,  // columns up to Llama 2, rows since Llama 3: the shape tells
};

struct MetaName {
  std::string_view stored, hub;
  Split split;
};

constexpr MetaName kNames[] = {{"tok_embeddings.weight", "model.embed_tokens.weight", Split::kEmbedding},
                               {"norm.weight", "model.norm.weight", Split::kSame},
                               {"output.weight", "lm_head.weight", Split::kRows}};
constexpr MetaName kLayerNames[] = {{"attention.wq.weight", "self_attn.q_proj.weight", Split::kRows},
                                    {"attention.wk.weight", "self_attn.k_proj.weight", Split::kRows},
                                    {"attention.wv.weight", "self_attn.v_proj.weight", Split::kRows},
                                    {"attention.wo.weight", "self_attn.o_proj.weight", Split::kColumns},
                                    {"attention_norm.weight", "input_layernorm.weight", Split::kSame},
                                    {"feed_forward.w1.weight", "mlp.gate_proj.weight", Split::kRows},
                                    {"feed_forward.w2.weight", "mlp.down_proj.weight", Split::kColumns},
                                    {"feed_forward.w3.weight", "mlp.up_proj.weight", Split::kRows},
                                    {"ffn_norm.weight", "post_attention_layernorm.weight", Split::kSame}};

const MetaName* find_name(std::span<const MetaName> names, std::string_view stored) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const MetaName& n) { return n.stored == stored; });
  return found == names.end() ? nullptr : &*found;
}

// A name that Meta's Llama does not have stays as it is.
std::pair<std::string, Split> hub_name(std::string_view stored) {
  if (const MetaName* name = find_name(kNames, stored)) return {std::string(name->hub), name->split};
  constexpr std::string_view kLayer = "layers.";
  const size_t dot = stored.starts_with(kLayer) ? stored.find('.', kLayer.size()) : stored.npos;
  if (dot != stored.npos) {
    if (const MetaName* name = find_name(kLayerNames, stored.substr(dot + 1)))
      return {cat("model.", stored.substr(0, dot + 1), name->hub), name->split};
  }
  return {std::string(stored), Split::kSame};
}

// The tensors of all files under "FILE NUMBER/NAME".
class MetaFiles : public MappedCheckpoint {
 public:
  MetaFiles(const std::string& path, const std::string& folder, const std::vector<std::string>& names) {
    path_ = path;
    weight_format_ = WeightFormat::kLlama;
    config_path_ = (fs::path(folder) / "params.json").string();
    files_.push_back(config_path_);
    for (const std::string& name : names) {
      const std::string file_path = (fs::path(folder) / name).string();
      files_.push_back(file_path);
      const TorchFile& file = *ranks_.emplace_back(std::make_unique<TorchFile>(file_path));
      for (const TorchTensor& tensor : file.tensors())
        add_tensor(
            {cat(ranks_.size() - 1, "/", tensor.name), tensor.dtype, tensor.shape, file_path, tensor.name},
            tensor.stored, file.file(), tensor.strides);
    }
  }

 private:
  std::vector<std::unique_ptr<TorchFile>> ranks_;
};

class MetaCheckpoint : public DerivedCheckpoint {
 public:
  MetaCheckpoint(std::unique_ptr<MetaFiles> files, size_t num_files)
      : DerivedCheckpoint(std::move(files)), num_files_(num_files) {
    const Json params = read_json_file(config_path_);
    const ConfigReader reader(params, config_path_);
    dim_ = reader.require_int("dim");
    std::map<std::string, std::vector<size_t>> pieces;  // by stored name
    for (size_t i = 0; i < base().tensors().size(); ++i) pieces[base().tensors()[i].stored_name].push_back(i);
    for (const auto& [stored, sources] : pieces) add(stored, sources);
    config_ = meta_hub_config(params, config_path_, weights_);
  }

 private:
  [[noreturn]] void fail(const std::string& stored, const std::string& what) const {
    throw Error(ErrorCode::kInvalidData, cat("open ", path_, ": tensor ", quote(stored), " ", what));
  }

  void add(const std::string& stored, const std::vector<size_t>& sources) {
    if (stored == "rope.freqs") {
      LMD_LOG(kDebug, "open ", path_, ": tensor \"rope.freqs\" is ignored by design");
      return;
    }
    check_pieces(stored, sources);
    auto [name, split] = hub_name(stored);
    const Shape& piece = base().tensors()[sources[0]].shape;
    const auto count = static_cast<int64_t>(sources.size());
    if (split == Split::kEmbedding)
      split = piece.rank() == 2 && piece[1] == dim_ ? Split::kRows : Split::kColumns;
    if (split != Split::kSame && piece.rank() != 2) fail(stored, cat("is ", piece, ", expected a matrix"));
    if (piece.numel() == 0) fail(stored, cat("is empty: ", piece));
    if (count == 1 || split == Split::kSame) {
      check_equal(stored, sources);
      add_stored(sources[0], name);
    } else {
      add_joined(name, split, sources);
    }
    note(name, tensors_.back());
  }

  void check_pieces(const std::string& stored, const std::vector<size_t>& sources) const {
    const TensorInfo& first = base().tensors()[sources[0]];
    if (sources.size() != num_files_)
      fail(stored, cat("is in ", sources.size(), " of ", num_files_, " files"));
    for (const size_t source : sources) {
      const TensorInfo& info = base().tensors()[source];
      if (info.dtype != first.dtype || !(info.shape == first.shape))
        fail(stored, cat("is ", first.dtype, " ", first.shape, " in ", first.file, ", but ", info.dtype, " ",
                         info.shape, " in ", info.file));
    }
  }

  void check_equal(const std::string& stored, const std::vector<size_t>& sources) const {
    const ConstTensorView first = base().tensor(sources[0]);
    const auto bytes = static_cast<size_t>(first.rows() * row_bytes(first.dtype(), first.cols()));
    for (size_t i = 1; i < sources.size(); ++i) {
      if (bytes > 0 && std::memcmp(first.data(), base().tensor(sources[i]).data(), bytes) != 0)
        fail(stored, cat("is not the same in ", base().tensors()[sources[0]].file, " and ",
                         base().tensors()[sources[i]].file));
    }
  }

  void add_joined(const std::string& name, Split split, const std::vector<size_t>& sources) {
    Recipe recipe;
    recipe.info = base().tensors()[sources[0]];
    recipe.info.name = name;
    const Shape piece = recipe.info.shape;
    const auto count = static_cast<int64_t>(sources.size());
    recipe.info.shape =
        split == Split::kRows ? Shape{piece[0] * count, piece[1]} : Shape{piece[0], piece[1] * count};
    recipe.sources = sources;
    recipe.make = [sources, split](const Checkpoint& files, std::byte* out) {
      join(files, sources, split, out);
    };
    add_computed(std::move(recipe));
  }

  // Rows one after another, or columns side by side.
  static void join(const Checkpoint& files, const std::vector<size_t>& sources, Split split, std::byte* out) {
    for (size_t i = 0; i < sources.size(); ++i) {
      const ConstTensorView piece = files.tensor(sources[i]);
      const auto row = static_cast<size_t>(row_bytes(piece.dtype(), piece.cols()));
      const auto rows = static_cast<size_t>(piece.rows());
      if (row == 0) continue;
      for (size_t r = 0; r < rows; ++r) {
        const size_t to = split == Split::kRows ? i * rows + r : r * sources.size() + i;
        std::memcpy(out + to * row, piece.data() + r * row, row);
      }
    }
  }

  void note(const std::string& name, const TensorInfo& info) {
    if (name == "lm_head.weight") weights_.has_output = true;
    if (info.shape.rank() != 2) return;
    if (name == "model.layers.0.mlp.gate_proj.weight") weights_.ffn_rows = info.shape[0];
    if (name != "model.embed_tokens.weight") return;
    weights_.embedding_rows = info.shape[0];
    weights_.dtype = info.dtype;
  }

  size_t num_files_;
  int64_t dim_ = 0;
  MetaWeights weights_{.has_output = false};
};

}  // namespace

std::unique_ptr<Checkpoint> open_meta(const std::string& path, const std::string& folder,
                                      const std::vector<std::string>& names) {
  return std::make_unique<MetaCheckpoint>(std::make_unique<MetaFiles>(path, folder, names), names.size());
}

}  // namespace lmdeploy
