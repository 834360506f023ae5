// Response and RequestOutput, Request and SamplingParams, and the statistics of an engine.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "bindings/bindings.h"

namespace lmdeploy::python {
namespace {

/// "stop", "length", "abort", "error", or None while there is more to come.
std::optional<std::string> finish_name(FinishReason reason) {
  if (reason == FinishReason::kNone) return std::nullopt;
  return std::string(to_string(reason));
}

nb::dict logprobs_dict(const std::vector<std::pair<int, float>>& pairs) {
  nb::dict dict;
  for (const auto& [id, logprob] : pairs) dict[nb::int_(id)] = logprob;
  return dict;
}

/// A list with one dict {id: log probability} per token; None when logprobs were not asked for.
nb::object response_logprobs(const Response& self) {
  if (self.logprobs.empty()) return nb::none();
  nb::list list;
  for (const auto& token : self.logprobs) list.append(logprobs_dict(token));
  return list;
}

nb::object output_logprobs(const RequestOutput& self) {
  if (self.logprobs.empty()) return nb::none();
  nb::list list;
  for (size_t i = 0; i < self.logprobs.size(); ++i) {
    nb::dict token = logprobs_dict(self.logprobs[i].top);
    token[nb::int_(self.token_ids[i])] = self.logprobs[i].chosen;
    list.append(token);
  }
  return list;
}

const nb::sig kTakeLogitsSignature("def take_logits(self, vocab_size: int) -> numpy.ndarray | None");
const nb::sig kTakeHiddenSignature("def take_hidden_states(self, hidden_size: int) -> numpy.ndarray | None");
constexpr const char* kTakeHiddenDoc =
    "float32 [rows, hidden_size], moved out without a copy; None when there are none.";
const nb::sig kLogprobsSignature("def logprobs(self) -> list[dict[int, float]] | None");

void bind_response(nb::module_& m) {
  using R = Response;
  nb::class_<R>(m, "Response", "A piece of an answer, or all of it.")
      .def_ro("text", &R::text)
      .def_ro("generate_token_len", &R::generate_token_len)
      .def_ro("input_token_len", &R::input_token_len)
      .def_prop_ro("finish_reason", [](const R& self) { return finish_name(self.finish_reason); })
      .def_ro("token_ids", &R::token_ids)
      .def_prop_ro("logprobs", &response_logprobs, nb::for_getter(kLogprobsSignature))
      .def(
          "take_logits", [](R& self, int64_t width) { return rows_to_numpy(std::move(self.logits), width); },
          nb::arg("vocab_size"), kTakeLogitsSignature,
          "float32 [rows, vocab_size], moved out without a copy; None when there are none.")
      .def(
          "take_hidden_states",
          [](R& self, int64_t width) { return rows_to_numpy(std::move(self.last_hidden_state), width); },
          nb::arg("hidden_size"), kTakeHiddenSignature, kTakeHiddenDoc)
      .def_ro("ppl", &R::ppl)
      .def_ro("index", &R::index)
      .def_ro("cached_tokens", &R::cached_tokens)
      .def_prop_ro("error_code",
                   [](const R& self) -> std::optional<std::string> {
                     if (!self.error_code) return std::nullopt;
                     return std::string(to_string(*self.error_code));
                   })
      .def_ro("error_message", &R::error_message);
}

void bind_request_output(nb::module_& m) {
  using R = RequestOutput;
  nb::class_<R>(m, "RequestOutput", "What became known of a request since the last output.")
      .def_ro("token_ids", &R::token_ids)
      .def_prop_ro("logprobs", &output_logprobs, nb::for_getter(kLogprobsSignature))
      .def(
          "take_logits", [](R& self, int64_t width) { return rows_to_numpy(std::move(self.logits), width); },
          nb::arg("vocab_size"), kTakeLogitsSignature,
          "float32 [rows, vocab_size], moved out without a copy; None when there are none.")
      .def(
          "take_hidden_states",
          [](R& self, int64_t width) { return rows_to_numpy(std::move(self.hidden_states), width); },
          nb::arg("hidden_size"), kTakeHiddenSignature, kTakeHiddenDoc)
      .def_ro("prompt_tokens", &R::prompt_tokens)
      .def_ro("cached_tokens", &R::cached_tokens)
      .def_ro("generated_tokens", &R::generated_tokens)
      .def_ro("session_tokens", &R::session_tokens)
      .def_ro("prompt_nll", &R::prompt_nll)
      .def_prop_ro("finish_reason", [](const R& self) { return finish_name(self.finish); })
      .def_prop_ro("error_code", [](const R& self) { return std::string(to_string(self.error_code)); })
      .def_ro("error_message", &R::error_message);
}

void bind_sampling(nb::module_& m) {
  using S = SamplingParams;
  nb::class_<S>(m, "SamplingParams", "How the next token is chosen.")
      .def(nb::init<>())
      .def_rw("temperature", &S::temperature)
      .def_rw("top_k", &S::top_k)
      .def_rw("top_p", &S::top_p)
      .def_rw("min_p", &S::min_p)
      .def_rw("repetition_penalty", &S::repetition_penalty)
      .def_rw("presence_penalty", &S::presence_penalty)
      .def_rw("frequency_penalty", &S::frequency_penalty)
      .def_rw("logit_bias", &S::logit_bias)
      .def_rw("bad_words", &S::bad_words)
      .def_rw("seed", &S::seed);
}

void bind_request(nb::module_& m) {
  using R = Request;
  nb::class_<R>(m, "Request", "Token ids in; what to do with them.")
      .def(nb::init<>())
      .def_rw("session_id", &R::session_id)
      .def(
          "set_input_ids",
          [](R& self, nb::handle ids) { self.input_ids = ids_from_python(ids, "input_ids"); }, nb::arg("ids"))
      .def_rw("sequence_start", &R::sequence_start)
      .def_rw("sequence_end", &R::sequence_end)
      .def_rw("step", &R::step)
      .def_rw("sampling", &R::sampling)
      .def_rw("max_new_tokens", &R::max_new_tokens)
      .def_rw("min_new_tokens", &R::min_new_tokens)
      .def_rw("stop_ids", &R::stop_ids)
      .def_rw("include_stop_id", &R::include_stop_id)
      .def_rw("repetition_ngram_size", &R::repetition_ngram_size)
      .def_rw("repetition_ngram_threshold", &R::repetition_ngram_threshold)
      .def_rw("num_logprobs", &R::num_logprobs)
      .def_rw("logits", &R::logits)
      .def_rw("hidden_states", &R::hidden_states)
      .def(
          "set_logits_processors",
          [](R& self, const nb::list& callables) {
            self.logits_processors = processors_from_python(callables);
          },
          nb::arg("callables"))
      .def_rw("score_prompt", &R::score_prompt);
}

}  // namespace

void bind_results(nb::module_& m) {
  bind_response(m);
  bind_request_output(m);
  bind_sampling(m);
  bind_request(m);
}

}  // namespace lmdeploy::python
