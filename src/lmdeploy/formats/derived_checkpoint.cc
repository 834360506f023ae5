#include "lmdeploy/formats/derived_checkpoint.h"

#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {

DerivedCheckpoint::DerivedCheckpoint(std::unique_ptr<Checkpoint> base) : base_(std::move(base)) {
  path_ = base_->path();
  config_path_ = base_->config_path();
  config_ = base_->config();
  generation_config_ = base_->generation_config();
  left_out_ = base_->left_out();
  engine_settings_ = base_->engine_settings();
  settings_path_ = base_->settings_path();
  files_ = base_->files();
  weight_format_ = base_->weight_format();
}

void DerivedCheckpoint::add_stored(size_t source, const std::string& name) {
  TensorInfo info = base_->tensors()[source];
  info.name = name;
  add(std::move(info), {source, nullptr});
}

void DerivedCheckpoint::add_computed(Recipe recipe) {
  TensorInfo info = recipe.info;
  add(std::move(info), {0, std::make_unique<const Recipe>(std::move(recipe))});
}

void DerivedCheckpoint::add(TensorInfo info, Entry entry) {
  add_info(std::move(info));
  entries_.push_back(std::move(entry));
}

ConstTensorView DerivedCheckpoint::tensor(size_t index) const {
  LMD_CHECK(index < entries_.size(), index, " of ", entries_.size());
  const Entry& entry = entries_[index];
  if (entry.recipe == nullptr) return base_->tensor(entry.source);
  const std::lock_guard lock(mutex_);
  Tensor& made = made_[index];
  if (made.empty()) {
    Tensor fresh(tensors_[index].dtype, tensors_[index].shape);
    entry.recipe->make(*base_, fresh.view().data());
    made = std::move(fresh);
  }
  return made.view();
}

void DerivedCheckpoint::drop(size_t index) const {
  LMD_CHECK(index < entries_.size(), index, " of ", entries_.size());
  const Entry& entry = entries_[index];
  if (entry.recipe == nullptr) return base_->drop(entry.source);
  for (const size_t source : entry.recipe->sources) base_->drop(source);
  const std::lock_guard lock(mutex_);
  made_.erase(index);
}

}  // namespace lmdeploy
