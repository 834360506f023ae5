// PipelineConfig, GenerationConfig, ChatTemplateConfig and RunOptions as plain attribute holders; the package
// fills them field by field from its own documented classes.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>

#include "bindings/bindings.h"

namespace lmdeploy::python {
namespace {

void bind_pipeline_config(nb::module_& m) {
  using C = PipelineConfig;
  nb::class_<C>(m, "PipelineConfig", "What a pipeline is opened with.")
      .def(nb::init<>())
      .def_prop_rw(
          "model_path", [](const C& self) { return std::filesystem::path(self.model_path); },
          [](C& self, const std::filesystem::path& path) { self.model_path = path.string(); })
      .def_rw("model_format", &C::model_format)
      .def_prop_rw(
          "local_path", [](const C& self) { return std::filesystem::path(self.local_path); },
          [](C& self, const std::filesystem::path& path) { self.local_path = path.string(); })
      .def_rw("dtype", &C::dtype)
      .def_rw("device_type", &C::device_type)
      .def_rw("session_len", &C::session_len, nb::arg().none())
      .def_rw("max_batch_size", &C::max_batch_size, nb::arg().none())
      .def_rw("cache_max_entry_count", &C::cache_max_entry_count, nb::arg().none())
      .def_rw("cache_block_seq_len", &C::cache_block_seq_len, nb::arg().none())
      .def_rw("enable_prefix_caching", &C::enable_prefix_caching, nb::arg().none())
      .def_rw("quant_policy", &C::quant_policy, nb::arg().none())
      .def_rw("rope_scaling_factor", &C::rope_scaling_factor, nb::arg().none())
      .def_rw("use_logn_attn", &C::use_logn_attn, nb::arg().none())
      .def_rw("max_prefill_token_num", &C::max_prefill_token_num, nb::arg().none())
      .def_rw("num_tokens_per_iter", &C::num_tokens_per_iter, nb::arg().none())
      .def_rw("max_prefill_iters", &C::max_prefill_iters, nb::arg().none())
      .def_rw("tp", &C::tp)
      .def_rw("communicator", &C::communicator)
      .def_rw("num_threads", &C::num_threads)
      .def_rw("deterministic", &C::deterministic)
      .def_rw("rounded_activations", &C::rounded_activations, nb::arg().none())
      .def_rw("chat_template", &C::chat_template)
      .def(
          "set_speculative",
          [](C& self, const std::string& method, const std::filesystem::path& model,
             const std::filesystem::path& local_path, int64_t num_speculative_tokens) {
            self.speculative = SpeculativeOptions{.method = method,
                                                  .model = model.string(),
                                                  .local_path = local_path.string(),
                                                  .num_speculative_tokens = num_speculative_tokens};
          },
          nb::arg("method"), nb::arg("model"), nb::arg("local_path"), nb::arg("num_speculative_tokens"))
      .def("set_hf_overrides", [](C& self, const nb::dict& overrides) {
        self.hf_overrides = json_from_python(overrides, "hf_overrides").as_object();
      });
}

void bind_generation_config(nb::module_& m) {
  using C = GenerationConfig;
  nb::enum_<OutputRows>(m, "OutputRows")
      .value("NONE", OutputRows::kNone)
      .value("GENERATION", OutputRows::kGeneration)
      .value("ALL", OutputRows::kAll);
  nb::class_<C>(m, "GenerationConfig", "How a prompt is answered.")
      .def(nb::init<>())
      .def_rw("n", &C::n)
      .def_rw("max_new_tokens", &C::max_new_tokens, nb::arg().none())
      .def_rw("do_sample", &C::do_sample)
      .def_rw("top_p", &C::top_p)
      .def_rw("min_p", &C::min_p)
      .def_rw("temperature", &C::temperature)
      .def_rw("top_k", &C::top_k)
      .def_rw("repetition_penalty", &C::repetition_penalty)
      .def_rw("presence_penalty", &C::presence_penalty)
      .def_rw("frequency_penalty", &C::frequency_penalty)
      .def_rw("ignore_eos", &C::ignore_eos)
      .def_rw("random_seed", &C::random_seed, nb::arg().none())
      .def_rw("stop_words", &C::stop_words)
      .def_rw("bad_words", &C::bad_words)
      .def_rw("stop_token_ids", &C::stop_token_ids)
      .def_rw("bad_token_ids", &C::bad_token_ids)
      .def_rw("min_new_tokens", &C::min_new_tokens)
      .def_rw("skip_special_tokens", &C::skip_special_tokens)
      .def_rw("spaces_between_special_tokens", &C::spaces_between_special_tokens)
      .def_rw("include_stop_str_in_output", &C::include_stop_str_in_output)
      .def_rw("logprobs", &C::logprobs, nb::arg().none())
      .def_rw("output_logits", &C::output_logits)
      .def_rw("output_last_hidden_state", &C::output_last_hidden_state)
      .def_rw("return_ppl", &C::return_ppl)
      .def(
          "set_logits_processors",
          [](C& self, const nb::list& callables) {
            self.logits_processors = processors_from_python(callables);
          },
          nb::arg("callables"))
      .def_rw("repetition_ngram_size", &C::repetition_ngram_size)
      .def_rw("repetition_ngram_threshold", &C::repetition_ngram_threshold)
      .def_rw("logit_bias", &C::logit_bias)
      .def(
          "set_response_format",
          [](C& self, const nb::dict& format) {
            constexpr std::string_view kWhere = "gen_config.response_format";
            self.response_format =
                read_response_format(format_from_python(format, std::string(kWhere)), kWhere);
          },
          nb::arg("response_format"))
      .def("validate", &C::validate);
}

void bind_template_config(nb::module_& m) {
  using C = ChatTemplateConfig;
  nb::class_<C>(m, "ChatTemplateConfig", "A catalogue template and the fields that replace its own.")
      .def(nb::init<>())
      .def_rw("model_name", &C::model_name)
      .def_rw("system", &C::system, nb::arg().none())
      .def_rw("meta_instruction", &C::meta_instruction, nb::arg().none())
      .def_rw("eosys", &C::eosys, nb::arg().none())
      .def_rw("user", &C::user, nb::arg().none())
      .def_rw("eoh", &C::eoh, nb::arg().none())
      .def_rw("assistant", &C::assistant, nb::arg().none())
      .def_rw("eoa", &C::eoa, nb::arg().none())
      .def_rw("tool", &C::tool, nb::arg().none())
      .def_rw("eotool", &C::eotool, nb::arg().none())
      .def_rw("separator", &C::separator, nb::arg().none())
      .def_rw("capability", &C::capability, nb::arg().none())
      .def_rw("stop_words", &C::stop_words, nb::arg().none());
}

void bind_run_options(nb::module_& m) {
  nb::class_<RunOptions>(m, "RunOptions", "How a prompt becomes text.")
      .def(nb::init<>())
      .def_rw("do_preprocess", &RunOptions::do_preprocess)
      .def_rw("add_generation_prompt", &RunOptions::add_generation_prompt)
      .def_rw("continue_final_message", &RunOptions::continue_final_message)
      .def("set_template_extra",
           [](RunOptions& self, const nb::dict& extra) {
             self.template_extra = json_from_python(extra, "template variables").as_object();
           })
      .def(
          "set_tools",
          [](RunOptions& self, nb::handle tools) { self.tools = json_from_python(tools, "tools"); },
          nb::arg("tools").none());
}

}  // namespace

void bind_configs(nb::module_& m) {
  bind_template_config(m);
  bind_pipeline_config(m);
  bind_generation_config(m);
  bind_run_options(m);
}

}  // namespace lmdeploy::python
