// Pipeline: opening a model, running a batch, and what is known about the loaded model.
#include "lmdeploy/pipeline/pipeline.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/paced_callback.h"
#include "bindings/signals.h"
#include "bindings/stream_group.h"
#include "lmdeploy/pipeline/scores.h"

namespace lmdeploy::python {
namespace {

std::shared_ptr<PipelineRef> open_pipeline(PipelineConfig config, nb::handle progress) {
  PacedCallback paced(progress);
  config.progress = [&](int64_t done, int64_t total) { paced(done == total, done, total); };
  const GilRelease release;
  return std::make_shared<PipelineRef>(config);
}

std::vector<Response> infer(const PipelineRef& self, const nb::list& prompts,
                            const std::vector<GenerationConfig>& gen_configs, const RunOptions& options,
                            nb::handle poll) {
  std::vector<Prompt> native_prompts;
  for (nb::handle prompt : prompts) {
    const std::string where =
        nb::len(prompts) == 1 ? "messages" : cat("prompts[", native_prompts.size(), "]");
    native_prompts.push_back(prompt_from_python(prompt, where));
  }
  PacedCallback paced(poll);
  const size_t total = native_prompts.size();
  const GilRelease release;
  return self.get().infer(native_prompts, gen_configs, options,
                          [&](size_t done) { paced(done == total, done); });
}

/// As Pipeline::get_ppl() and get_reward_score(), but Ctrl-C ends it.
std::vector<double> score(ScoreKind kind, const std::shared_ptr<PipelineRef>& self, const nb::list& lists) {
  std::vector<std::vector<int>> input_ids;
  for (nb::handle ids : lists)
    input_ids.push_back(ids_from_python(ids, cat("input_ids[", input_ids.size(), "]")));
  check_scored_ids(kind, input_ids, self->get().spec());
  StreamGroup<RequestHandle> group(self);
  for (const std::vector<int>& ids : input_ids) {
    const GilRelease release;
    group.add(self->with_engine([&](Engine& engine) { return engine.submit(score_request(kind, ids)); }));
  }
  std::vector<double> scores(input_ids.size());
  while (const auto output = next_with_signals(group, std::nullopt)) {
    const auto& [idx, scored] = *output;
    if (scored.finish != FinishReason::kNone) scores[idx] = score_of(kind, scored, idx);
  }
  return scores;
}

std::string render(const PipelineRef& self, nb::handle prompt, const RunOptions& options) {
  const Prompt native_prompt = prompt_from_python(prompt);
  const GilRelease release;
  return self.get().render(native_prompt, options);
}

std::pair<std::string, std::vector<int>> preview(const PipelineRef& self, nb::handle prompt,
                                                 const RunOptions& options) {
  const Prompt native_prompt = prompt_from_python(prompt);
  const GilRelease release;
  PromptPreview seen = self.get().preview(native_prompt, options);
  return {std::move(seen.text), std::move(seen.token_ids)};
}

nb::object tokenizer(const PipelineRef& self) {
  if (auto impl = self.get().tokenizer()) return nb::cast(TokenizerRef{std::move(impl)});
  return nb::none();
}

nb::object chat_template(const PipelineRef& self) {
  if (auto impl = self.get().chat_template()) return nb::cast(ChatTemplateRef{std::move(impl)});
  return nb::none();
}

void bind_stats(nb::module_& m) {
  using S = EngineStats;
  nb::class_<S>(m, "EngineStats", "Counters and gauges of an engine; free + used + cached == total blocks.")
      .def_ro("total_blocks", &S::total_blocks)
      .def_ro("free_blocks", &S::free_blocks)
      .def_ro("used_blocks", &S::used_blocks)
      .def_ro("cached_blocks", &S::cached_blocks)
      .def_ro("running", &S::running)
      .def_ro("waiting", &S::waiting)
      .def_ro("sessions", &S::sessions)
      .def_ro("finished", &S::finished)
      .def_ro("aborted", &S::aborted)
      .def_ro("failed", &S::failed)
      .def_ro("preemptions", &S::preemptions)
      .def_ro("steps", &S::steps)
      .def_ro("prompt_tokens", &S::prompt_tokens)
      .def_ro("generated_tokens", &S::generated_tokens)
      .def_ro("prefix_queried_tokens", &S::prefix_queried_tokens)
      .def_ro("prefix_hit_tokens", &S::prefix_hit_tokens)
      .def_prop_ro("num_drafts", [](const S& self) { return self.speculative.num_drafts; })
      .def_prop_ro("num_draft_tokens", [](const S& self) { return self.speculative.num_draft_tokens; })
      .def_prop_ro("num_accepted_tokens", [](const S& self) { return self.speculative.num_accepted_tokens; })
      .def_prop_ro("num_accepted_tokens_per_pos",
                   [](const S& self) {
                     const auto& counts = self.speculative.num_accepted_tokens_per_pos;
                     return std::vector<int64_t>(counts.begin(), counts.end());
                   })
      .def_prop_ro("speculative_gain", [](const S& self) { return self.speculative.gain(); });
}

}  // namespace

void bind_pipeline(nb::module_& m) {
  using P = PipelineRef;
  bind_stats(m);
  nb::class_<P>(m, "Pipeline", "A loaded model; thread-safe.")
      .def_static("open", &open_pipeline, nb::arg("config"), nb::arg("progress") = nb::none(),
                  "Loads the model; progress(done_bytes, total_bytes) is called now and then.")
      .def("infer", &infer, nb::arg("prompts"), nb::arg("gen_configs"), nb::arg("options"),
           nb::arg("poll") = nb::none(), "Runs all prompts; poll(number done) is called now and then.")
      .def("render", &render, nb::arg("prompt"), nb::arg("options"), "The prompt after the chat template.")
      .def("preview", &preview, nb::arg("prompt"), nb::arg("options"), "The prompt's text and its token ids.")
      .def(
          "constrain",
          [](const P& self, Request& request, const GenerationConfig& config) {
            request.grammar = self.get().grammar(config);
          },
          nb::arg("request"), nb::arg("gen_config"), ReleaseGil(),
          "Lets the request generate only what the config's response_format admits.")
      .def("new_session",
           [](const P& self) { return SessionRef{std::make_shared<ChatSession>(self.get().new_session())}; })
      .def(
          "end_session",
          [](const P& self, const SessionRef& session) { self.get().end_session(*session.impl); },
          nb::arg("session"), ReleaseGil())
      .def(
          "end_session_id",
          [](const P& self, uint64_t id) { self.with_engine([&](Engine& e) { e.end_session(id); }); },
          nb::arg("session_id"), ReleaseGil())
      .def("close", &P::close, ReleaseGil())
      .def(
          "stats", [](const P& self) { return self.with_engine([](Engine& e) { return e.stats(); }); },
          ReleaseGil())
      .def_prop_ro("tokenizer", &tokenizer,
                   nb::for_getter(nb::sig("def tokenizer(self) -> Tokenizer | None")),
                   "None for a checkpoint without one.")
      .def_prop_ro("chat_template", &chat_template,
                   nb::for_getter(nb::sig("def chat_template(self) -> ChatTemplate | None")))
      .def_prop_ro("session_len", [](const P& self) { return self.get().session_len(); })
      .def_prop_ro("vocab_size", [](const P& self) { return self.get().spec().vocab_size; })
      .def_prop_ro("hidden_size", [](const P& self) { return self.get().spec().hidden_size; })
      .def_prop_ro("gives_score", [](const P& self) { return self.get().spec().gives_score; })
      .def_prop_ro("architecture", [](const P& self) { return self.get().spec().architecture; })
      .def_prop_ro("eos_ids", [](const P& self) { return self.get().eos_ids(); });
  m.def(
      "get_ppl",
      [](const std::shared_ptr<PipelineRef>& pipeline, const nb::list& input_ids) {
        return score(ScoreKind::kPerplexity, pipeline, input_ids);
      },
      nb::arg("pipeline"), nb::arg("input_ids"),
      "Mean negative log-likelihood per token (nats) of each id list.");
  m.def(
      "get_reward_score",
      [](const std::shared_ptr<PipelineRef>& pipeline, const nb::list& input_ids) {
        return score(ScoreKind::kReward, pipeline, input_ids);
      },
      nb::arg("pipeline"), nb::arg("input_ids"), "What a reward model says after each id list.");
}

}  // namespace lmdeploy::python
