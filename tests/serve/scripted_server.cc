#include "scripted_server.h"

#include <chrono>
#include <thread>

#include "../pipeline/text_models.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/pipeline/loaded_model.h"

namespace lmdeploy::testing {
namespace {

constexpr int kPromptEnd = '\n';  // of "<|im_start|>assistant\n"

/// How many tokens the answer has already: those after the last prompt's end; of a prompt without one, those
/// after its first token.
size_t answered(std::span<const int> tokens) {
  for (size_t i = tokens.size(); i > 0; --i)
    if (tokens[i - 1] == kPromptEnd && i >= 10 && tokens[i - 11] == kImStart) return tokens.size() - i;
  return tokens.size() - 1;
}

std::string text_of(std::span<const int> tokens) {
  std::string text;
  for (const int token : tokens)
    if (token < 256) text += static_cast<char>(token);
  return text;
}

void await(const std::function<bool()>& done, const char* what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "waited 20 seconds for " << what;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

ScriptedServer::ScriptedServer(ScriptOptions options) {
  if (options.service.model_names.empty()) options.service.model_names = {"scripted"};
  server_ = std::make_unique<ApiServer>(options.http, options.service);
  if (!options.load) return;
  pipeline_ = make_pipeline(options);
  server_->service().set_ready(pipeline_);
}

ScriptedServer::~ScriptedServer() {
  open_gate();
  server_->stop();
}

std::shared_ptr<Pipeline> ScriptedServer::make_pipeline(const ScriptOptions& options) {
  std::vector<std::string> marks;
  if (options.infilling) marks = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"};
  write_tokenizer_files(folder_.path(), /*eos=*/true, marks);
  FakeOptions fake;
  fake.vocab_size = kTextVocab + static_cast<int64_t>(marks.size());
  fake.max_positions = options.session_len;
  auto model = std::make_unique<FakeModel>(fake);
  if (!options.free)
    model->script = [answer = options.answer, endless = options.endless,
                     on_prompt = options.on_prompt](std::span<const int> tokens) {
      size_t place = answered(tokens);
      if (place == 0 && on_prompt) on_prompt(text_of(tokens));
      if (endless) place %= answer.size();
      return place < answer.size() ? static_cast<int>(static_cast<uint8_t>(answer[place])) : kImEnd;
    };
  model->before_step = [this, time = options.step_time, hook = options.before_step](const StepInput& input) {
    std::this_thread::sleep_for(time);
    while (gate_closed_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (hook) hook(input);
  };
  LoadedModel loaded;
  loaded.info.config.model_path = folder_.path();
  loaded.info.tokenizer = Tokenizer::load(folder_.path());
  loaded.info.chat_template = choose_chat_template(
      folder_.path(), std::nullopt,
      options.chat_template.empty() ? loaded.info.tokenizer->chat_template() : options.chat_template,
      loaded.info.tokenizer->bos_token(), loaded.info.tokenizer->eos_token());
  loaded.info.spec = model->spec();
  loaded.info.eos_ids = {kImEnd};
  loaded.runtime = std::make_shared<Runtime>();
  loaded.runtime->kernels = make_ref_kernels(std::make_shared<ThreadPool>(1));
  loaded.runtime->model = std::move(model);
  EngineConfig engine;
  engine.session_len = options.session_len;
  engine.max_batch_size = options.max_batch_size;
  engine.block_len = 16;
  engine.enable_prefix_caching = options.prefix_caching;
  engine.kv_dtype = DType::kF32;
  loaded.runtime->engine = std::make_unique<Engine>(*loaded.runtime->model, *loaded.runtime->kernels, engine);
  loaded.info.session_len = loaded.runtime->engine->session_len();
  return std::make_shared<Pipeline>(std::move(loaded));
}

RawReply ScriptedServer::get(const std::string& target, const std::string& headers) {
  return connect().get(target, headers);
}

RawReply ScriptedServer::post(const std::string& target, const std::string& body,
                              const std::string& headers) {
  return connect().post(target, body, "Content-Type: application/json\r\n" + headers);
}

Json ScriptedServer::post_json(const std::string& target, const std::string& body, int status,
                               const std::string& headers) {
  const RawReply reply = post(target, body, headers);
  EXPECT_EQ(reply.status, status) << reply.body;
  EXPECT_TRUE(reply.complete);
  return parse_json(reply.body, "answer");
}

void ScriptedServer::await_idle() {
  await(
      [&] {
        const EngineStats stats = pipeline_->engine().stats();
        return stats.running + stats.waiting + stats.sessions == 0 && stats.used_blocks == 0;
      },
      "the engine to be idle");
}

void ScriptedServer::await_running(int64_t count) {
  await(
      [&] {
        const EngineStats stats = pipeline_->engine().stats();
        return stats.running + stats.waiting == count;
      },
      "requests to run");
}

void ScriptedServer::await_admitted(int64_t count) {
  await([&] { return server_->service().admission().counts().running == count; }, "requests to be admitted");
}

void ScriptedServer::await_waiting(int64_t count) {
  await([&] { return server_->service().admission().counts().waiting == count; }, "requests to wait");
}

std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  size_t at = 0;
  while ((at = body.find("data: ", at)) != std::string::npos) {
    const size_t end = body.find('\n', at);
    const std::string text = body.substr(at + 6, end - at - 6);
    events.push_back(text == "[DONE]" ? Json(text) : parse_json(text, "event"));
    at = end;
  }
  return events;
}

}  // namespace lmdeploy::testing
