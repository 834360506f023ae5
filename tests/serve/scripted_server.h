// A server whose model gives the answer that a test writes, byte by byte.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "../engine/fake_model.h"
#include "../http/raw_client.h"
#include "../models/random_llama.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/serve/api_server.h"

namespace lmdeploy::testing {

struct ScriptOptions {
  /// What the model answers, after any prompt; then it ends its turn. Endless: it repeats the answer.
  std::string answer = "Hello";
  bool endless = false;
  bool free = false;               // no answer is written: every token depends on all before it
  std::string chat_template = {};  // Jinja; empty: that of write_tokenizer_files()
  bool infilling = false;          // the tokenizer has the marks of models that fill gaps
  int64_t session_len = 2048, max_batch_size = 8;
  std::chrono::milliseconds step_time{0};  // the least that a step takes
  bool prefix_caching = false;
  /// Called in the engine's thread, may throw: before each step; with the prompt of each answer that begins.
  std::function<void(const StepInput&)> before_step = {};
  std::function<void(const std::string& prompt)> on_prompt = {};
  ServiceOptions service = {};
  http::ServerOptions http = {};
  bool load = true;  // false: the server stays in the state of loading
};

class ScriptedServer {
 public:
  explicit ScriptedServer(ScriptOptions options = {});
  ~ScriptedServer();

  int port() const { return server_->port(); }
  RawClient connect() const { return RawClient(port()); }
  ApiServer& server() { return *server_; }
  Pipeline& pipeline() { return *pipeline_; }

  /// One request on a connection of its own.
  RawReply get(const std::string& target, const std::string& headers = "");
  RawReply post(const std::string& target, const std::string& body, const std::string& headers = "");
  /// The same; expects the status and JSON.
  Json post_json(const std::string& target, const std::string& body, int status = 200,
                 const std::string& headers = "");

  /// Steps of the engine wait until open() after close_gate().
  void close_gate() { gate_closed_ = true; }
  void open_gate() { gate_closed_ = false; }
  /// Returns when the engine has no request or session left and all blocks are back; fails the test after 20
  /// seconds.
  void await_idle();
  void await_running(int64_t count);
  /// Returns when so many requests have their place in the engine.
  void await_admitted(int64_t count);
  /// Returns when so many requests wait for their place.
  void await_waiting(int64_t count);

 private:
  std::shared_ptr<Pipeline> make_pipeline(const ScriptOptions& options);

  TempFolder folder_;
  std::atomic<bool> gate_closed_ = false;
  std::shared_ptr<Pipeline> pipeline_;
  std::unique_ptr<ApiServer> server_;
};

/// The JSON values of the "data:" lines; "[DONE]" as a string.
std::vector<Json> events_of(const std::string& body);

}  // namespace lmdeploy::testing
