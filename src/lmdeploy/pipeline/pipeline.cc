#include "lmdeploy/pipeline/pipeline.h"

#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/pipeline/batch.h"
#include "lmdeploy/pipeline/pipeline_impl.h"
#include "lmdeploy/pipeline/speculative.h"

namespace lmdeploy {
namespace {

RequestDefaults request_defaults(const ModelInfo& info) {
  RequestDefaults defaults;
  defaults.tokenizer = info.tokenizer;
  defaults.eos_ids = info.eos_ids;
  if (info.chat_template) defaults.template_stop_words = info.chat_template->stop_words();
  defaults.vocab_size = info.spec.vocab_size;
  defaults.hidden_size = info.spec.hidden_size;
  defaults.gives_score = info.spec.gives_score;
  defaults.session_len = info.session_len;
  return defaults;
}

const GenerationConfig& config_for(const std::vector<GenerationConfig>& gen_configs, size_t prompt) {
  return gen_configs.size() == 1 ? gen_configs[0] : gen_configs[prompt];
}

void check_counts(size_t num_prompts, size_t num_configs) {
  if (num_configs != 1 && num_configs != num_prompts)
    throw Error(ErrorCode::kInvalidArgument, cat("infer: ", num_configs, " gen_configs for ", num_prompts,
                                                 " prompts; expected one for all or one "
                                                 "per prompt"));
}

}  // namespace

Pipeline::Impl::Impl(LoadedModel loaded)
    : info_(std::move(loaded.info)),
      encoder_(info_.tokenizer, info_.chat_template, info_.spec.vocab_size),
      builder_(request_defaults(info_)),
      runtime_(std::move(loaded.runtime)) {}

std::shared_ptr<Runtime> Pipeline::Impl::runtime() const {
  const std::lock_guard lock(mutex_);
  if (runtime_ == nullptr)
    throw Error(ErrorCode::kClosed, cat("the pipeline of ", info_.config.model_path, " has been closed"));
  return runtime_;
}

bool Pipeline::Impl::on_engine_thread() const {
  const std::lock_guard lock(mutex_);
  return runtime_ != nullptr && runtime_->engine->on_own_thread();
}

// The engine's thread may use the runtime until it has ended.
void Pipeline::Impl::close() {
  std::shared_ptr<Runtime> runtime;
  {
    const std::lock_guard lock(mutex_);
    runtime = runtime_;
  }
  if (runtime == nullptr) return;
  runtime->engine->close();
  if (info_.config.speculative) LMD_LOG(kInfo, speculative_report(runtime->engine->stats().speculative));
  const std::lock_guard lock(mutex_);
  runtime_.reset();
}

std::unique_ptr<ResponseStream> Pipeline::Impl::start(Runtime& runtime, std::vector<int> input_ids,
                                                      const GenerationConfig& gen_config) const {
  if (!builder_.fits(input_ids.size(), gen_config)) {
    gen_config.validate();
    return reject(input_ids.size());
  }
  return start(runtime, builder_.build(std::move(input_ids), gen_config));
}

std::unique_ptr<EngineStream> Pipeline::Impl::start(Runtime& runtime, PreparedRequest prepared) const {
  TextStream text(info_.tokenizer, std::move(prepared.text));
  return std::make_unique<EngineStream>(runtime.engine->submit(std::move(prepared.request)), std::move(text));
}

std::unique_ptr<ResponseStream> Pipeline::Impl::reject(size_t num_prompt_tokens) const {
  Response reason = builder_.rejection(num_prompt_tokens);
  LMD_LOG(kWarning, reason.error_message);
  return std::make_unique<RejectedStream>(std::move(reason));
}

void require_one_choice(const GenerationConfig& gen_config) {
  if (gen_config.n != 1)
    throw Error(ErrorCode::kInvalidArgument,
                cat("gen_config.n is ", gen_config.n,
                    "; a stream gives one answer: use n = 1 and start one stream for "
                    "each choice"));
}

Pipeline::Pipeline(const PipelineConfig& config) : impl_(std::make_unique<Impl>(config)) {}

Pipeline::Pipeline(LoadedModel loaded) : impl_(std::make_unique<Impl>(std::move(loaded))) {}

Pipeline::~Pipeline() { close(); }

std::unique_ptr<ResponseStream> Pipeline::submit(const Prompt& prompt, const GenerationConfig& gen_config,
                                                 const RunOptions& options) {
  const std::shared_ptr<Runtime> runtime = impl_->runtime();
  require_one_choice(gen_config);
  return impl_->start(*runtime, impl_->encoder().encode(prompt, options), gen_config);
}

std::vector<Response> Pipeline::infer(const std::vector<Prompt>& prompts,
                                      const std::vector<GenerationConfig>& gen_configs,
                                      const RunOptions& options,
                                      const std::function<void(size_t done)>& poll) {
  const std::shared_ptr<Runtime> runtime = impl_->runtime();
  if (prompts.empty()) return {};
  check_counts(prompts.size(), gen_configs.size());
  // Everything is checked before anything runs.
  for (const GenerationConfig& gen_config : gen_configs) impl_->builder().check(gen_config);
  std::vector<std::vector<int>> input_ids;
  for (size_t i = 0; i < prompts.size(); ++i) {
    try {
      input_ids.push_back(impl_->encoder().encode(prompts[i], options));
    } catch (const Error& error) {
      throw Error(error.code(), cat("prompts[", i, "]: ", error.what()));
    }
  }
  std::vector<BatchJob> jobs;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const GenerationConfig& gen_config = config_for(gen_configs, i);
    for (int choice = 0; choice < gen_config.n; ++choice)
      jobs.push_back({i, impl_->start(*runtime, input_ids[i], gen_config.choice(choice))});
  }
  return collect(std::move(jobs), poll);
}

std::shared_ptr<const TokenGrammar> Pipeline::grammar(const GenerationConfig& gen_config) const {
  return impl_->builder().grammar_of(gen_config);
}

std::string Pipeline::render(const Prompt& prompt, const RunOptions& options) const {
  return impl_->encoder().render(prompt, options);
}

PromptPreview Pipeline::preview(const Prompt& prompt, const RunOptions& options) const {
  return impl_->encoder().preview(prompt, options);
}

Engine& Pipeline::engine() { return *impl_->runtime()->engine; }
std::shared_ptr<const Tokenizer> Pipeline::tokenizer() const { return impl_->info().tokenizer; }
std::shared_ptr<const ChatTemplate> Pipeline::chat_template() const { return impl_->info().chat_template; }
const PipelineConfig& Pipeline::config() const { return impl_->info().config; }
const DecoderSpec& Pipeline::spec() const { return impl_->info().spec; }
int64_t Pipeline::session_len() const { return impl_->info().session_len; }
const std::vector<int>& Pipeline::eos_ids() const { return impl_->info().eos_ids; }

bool Pipeline::on_engine_thread() const { return impl_->on_engine_thread(); }

void Pipeline::close() { impl_->close(); }

}  // namespace lmdeploy
