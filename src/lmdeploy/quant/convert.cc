#include "lmdeploy/quant/convert.h"

#include <unistd.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/output_file.h"
#include "lmdeploy/models/model_plan.h"
#include "lmdeploy/quant/triton_files.h"
#include "lmdeploy/quant/workspace_writer.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, cat("convert: ", what));
}

// The folder with the files that belong to a checkpoint: itself, or the one a file lies in.
fs::path folder_of(const std::string& path) {
  const fs::path absolute = fs::absolute(path).lexically_normal();
  if (fs::is_directory(absolute)) return absolute;
  return absolute.parent_path();
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const fs::path relative = fs::weakly_canonical(path).lexically_relative(fs::weakly_canonical(folder));
  return !relative.empty() && *relative.begin() != "..";
}

// Nothing but an older workspace or an empty folder is ever deleted, and never what is being read.
void check_destination(const fs::path& dst, const ConvertRequest& request) {
  if (!fs::exists(fs::symlink_status(dst))) return;
  if (!fs::is_directory(fs::symlink_status(dst)))
    refuse(cat(dst.string(), " is there and is no folder; choose another --dst-path"));
  for (const std::string& source : {request.model_path, request.tokenizer_path})
    if (!source.empty() && is_inside(source, dst))
      refuse(cat(dst.string(), " holds what is to be converted (", source, "); choose another --dst-path"));
  if (!fs::is_empty(dst) && !fs::is_directory(dst / "triton_models"))
    refuse(cat(dst.string(),
               " is neither empty nor a converted workspace, so it is not deleted; choose another "
               "--dst-path"));
}

void check_request(const ConvertRequest& request) {
  if (request.tp < 1 || !std::has_single_bit(static_cast<uint64_t>(request.tp)))
    refuse(cat("--tp is ", request.tp, "; expected a power of two"));
  if (request.group_size < 0) refuse(cat("--group-size is ", request.group_size, "; expected 0 or more"));
  if (request.model_format == "awq" && request.group_size == 0)
    refuse("--model-format awq needs the --group-size of the checkpoint, normally 128");
  if (request.dtype != "auto" && request.dtype != "float16" && request.dtype != "bfloat16")
    refuse(cat("--dtype is ", request.dtype, "; expected auto, float16 or bfloat16"));
}

/// A new folder beside `dst` that is removed unless it is renamed to `dst`.
class NewFolder {
 public:
  explicit NewFolder(fs::path dst) : dst_(std::move(dst)) {
    if (dst_.has_parent_path()) fs::create_directories(dst_.parent_path());
    path_ = beside(".partial-");
    if (!fs::create_directory(path_))
      throw Error(ErrorCode::kIo, cat("create ", path_.string(), ": it is there"));
  }
  ~NewFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const fs::path& path() const { return path_; }

  /// Whether something stood at `dst`.
  bool commit() {
    const bool replaces = fs::exists(dst_);
    const fs::path old = beside(".old-");
    if (replaces) fs::rename(dst_, old);
    fs::rename(path_, dst_);
    if (replaces) fs::remove_all(old);
    return replaces;
  }

 private:
  fs::path beside(const std::string& mark) const {
    return dst_.parent_path() / (dst_.filename().string() + mark + std::to_string(::getpid()));
  }

  fs::path dst_, path_;
};

bool belongs_to_tokenizer(const fs::path& file) {
  const std::string name = file.filename().string(), extension = file.extension().string();
  return extension == ".json" || extension == ".py" || extension == ".model" || extension == ".tiktoken" ||
         extension == ".jinja" || name == "merges.txt" || name == "vocab.txt";
}

void copy_tokenizer(const ConvertRequest& request, const fs::path& to) {
  fs::create_directories(to);
  write_text_file((to / "placeholder").string(), "");
  const std::string& source = request.tokenizer_path.empty() ? request.model_path : request.tokenizer_path;
  if (!fs::exists(source))
    throw Error(ErrorCode::kNotFound, cat("convert: --tokenizer-path ", source, " does not exist"));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of(source)))
    if (entry.is_regular_file() && belongs_to_tokenizer(entry.path()))
      fs::copy_file(entry.path(), to / entry.path().filename());
  write_text_file((to / "tokenizer.py").string(), tokenizer_script());
}

/// Copies files, saying how far it has come.
class Copier {
 public:
  Copier(std::vector<std::string> files, const std::function<void(int64_t, int64_t)>& progress)
      : files_(std::move(files)), progress_(progress) {
    for (const std::string& file : files_) total_ += static_cast<int64_t>(fs::file_size(file));
  }

  void copy_to(const fs::path& folder) {
    for (const std::string& file : files_) copy(file, folder / name_in_folder(file));
  }

 private:
  // A checkpoint that is one file of any name has the usual one in a folder.
  std::string name_in_folder(const fs::path& file) const {
    const std::string extension = file.extension().string();
    const bool is_weights =
        extension == ".safetensors" || extension == ".pt" || extension == ".pth" || extension == ".bin";
    size_t others = 0;
    for (const std::string& other : files_) others += !other.ends_with("config.json");
    if (!is_weights || others > 1) return file.filename().string();
    return extension == ".safetensors" ? "model.safetensors" : "pytorch_model.bin";
  }

  void copy(const std::string& from, const fs::path& to) {
    std::ifstream in(from, std::ios::binary);
    OutputFile out(to.string());
    std::string buffer(size_t{1} << 22, '\0');
    while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
      out.write(std::string_view(buffer).substr(0, static_cast<size_t>(in.gcount())));
      done_ += in.gcount();
      if (progress_) progress_(done_, total_);
    }
    if (!in.eof()) throw Error(ErrorCode::kIo, cat("read ", from, ": the system cannot read on"));
    out.commit();
  }

  std::vector<std::string> files_;
  const std::function<void(int64_t, int64_t)>& progress_;
  int64_t done_ = 0, total_ = 0;
};

// The checkpoint's files and the configs of quantisation beside them.
std::vector<std::string> own_files(const ConvertRequest& request, const Checkpoint& checkpoint) {
  std::set<std::string> files(checkpoint.files().begin(), checkpoint.files().end());
  for (const char* name : {"quantize_config.json", "quant_config.json"})
    if (const fs::path beside = folder_of(request.model_path) / name; fs::exists(beside))
      files.insert(beside.string());
  return {files.begin(), files.end()};
}

// The tokenizer of a GGUF file is in it.
void link_gguf_tokenizer(const fs::path& weights, const fs::path& tokenizer) {
  if (fs::exists(tokenizer / "tokenizer.json") || fs::exists(tokenizer / "tokenizer.model")) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(weights))
    if (entry.path().extension() == ".gguf")
      fs::create_symlink(fs::path("../weights") / entry.path().filename(),
                         tokenizer / entry.path().filename());
}

void check_group_size(const ConvertRequest& request, const Checkpoint& checkpoint) {
  if (request.group_size == 0) return;
  const int64_t found = quantized_group_size(checkpoint);
  if (found != 0 && found != request.group_size)
    refuse(cat("--group-size is ", request.group_size, ", but the checkpoint has groups of ", found));
}

}  // namespace

ConvertResult convert_model(const ConvertRequest& request) {
  check_request(request);
  const fs::path dst = fs::absolute(request.dst_path).lexically_normal();
  const fs::path target = dst.has_filename() ? dst : dst.parent_path();
  check_destination(target, request);
  const std::unique_ptr<Checkpoint> checkpoint = open_checkpoint(request.model_path, {request.model_format});
  if (!checkpoint->settings_path().empty())
    refuse(cat(request.model_path, " is a converted workspace already"));
  check_group_size(request, *checkpoint);
  const ModelPlan model = plan_model(*checkpoint);
  ConvertResult result;
  result.own_layout_reason = own_layout_reason(*checkpoint, model);

  NewFolder folder(target);
  const fs::path weights = folder.path() / "triton_models" / "weights",
                 tokenizer = folder.path() / "triton_models" / "tokenizer";
  fs::create_directories(weights);
  copy_tokenizer(request, tokenizer);
  if (result.own_layout_reason.empty()) {
    write_workspace_weights(weights.string(), *checkpoint, model, request);
  } else {
    Copier(own_files(request, *checkpoint), request.progress).copy_to(weights);
    link_gguf_tokenizer(weights, tokenizer);
  }
  write_workspace_config(weights.string(), *checkpoint, model, request, !result.own_layout_reason.empty());
  write_triton_files(folder.path().string(), request.template_name, request.tp);
  result.replaced = folder.commit();
  return result;
}

}  // namespace lmdeploy
