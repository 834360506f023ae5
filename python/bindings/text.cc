// Tokenizer, Detokenizer and chat templates for Python.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <filesystem>

#include "bindings/bindings.h"
#include "bindings/handles.h"

namespace lmdeploy::python {
namespace {

std::vector<int> encode(const TokenizerRef& self, std::string_view text, bool add_special_tokens,
                        std::optional<bool> parse_special) {
  return self.impl->encode(text, {.add_special_tokens = add_special_tokens, .parse_special = parse_special});
}

nb::bytes token_bytes(const TokenizerRef& self, int id) {
  const std::string bytes = self.impl->token_bytes(id);
  return nb::bytes(bytes.data(), bytes.size());
}

void bind_tokenizer(nb::module_& m) {
  using T = TokenizerRef;
  nb::class_<T>(m, "Tokenizer", "Text to token ids and back; immutable and thread-safe.")
      .def_static(
          "load", [](const std::filesystem::path& path) { return T{Tokenizer::load(path.string())}; },
          nb::arg("path"), ReleaseGil(), "A model folder, a tokenizer.json, .gguf, .model or .tiktoken file.")
      .def("encode", &encode, nb::arg("text"), nb::arg("add_special_tokens") = true,
           nb::arg("parse_special") = nb::none(), ReleaseGil())
      .def(
          "decode",
          [](const T& self, nb::handle ids, bool skip) {
            const std::vector<int> native = ids_from_python(ids, "ids");
            const GilRelease release;
            return self.impl->decode(native, skip);
          },
          nb::arg("ids"), nb::arg("skip_special_tokens") = true)
      .def(
          "decode_pieces",
          [](const T& self, nb::handle ids, bool skip) {
            return self.impl->decode_pieces(ids_from_python(ids, "ids"), skip);
          },
          nb::arg("ids"), nb::arg("skip_special_tokens") = true)
      .def(
          "token_text", [](const T& self, int id) { return std::string(self.impl->token_text(id)); },
          nb::arg("id"), "The token as the vocabulary spells it; \"\" for an unused id.")
      .def("token_bytes", &token_bytes, nb::arg("id"),
           "The bytes it stands for in running text; empty for special tokens and unused ids.")
      .def(
          "token_id", [](const T& self, const std::string& text) { return self.impl->token_id(text); },
          nb::arg("text"), "The id whose spelling is exactly `text`, or None.")
      .def(
          "is_special", [](const T& self, int id) { return self.impl->is_special(id); }, nb::arg("id"))
      .def_prop_ro("vocab_size", [](const T& self) { return self.impl->vocab_size(); })
      .def_prop_ro("bos_id", [](const T& self) { return self.impl->bos_id(); })
      .def_prop_ro("eos_id", [](const T& self) { return self.impl->eos_id(); })
      .def_prop_ro("end_ids", [](const T& self) { return self.impl->end_ids(); })
      .def_prop_ro("bos_token", [](const T& self) { return self.impl->bos_token(); })
      .def_prop_ro("eos_token", [](const T& self) { return self.impl->eos_token(); })
      .def_prop_ro("chat_template", [](const T& self) { return self.impl->chat_template(); });
}

void bind_detokenizer(nb::module_& m) {
  nb::class_<Detokenizer>(m, "Detokenizer",
                          "Ids that arrive one after another to text, never half a character.")
      .def(
          "__init__",
          [](Detokenizer* self, const TokenizerRef& tokenizer, bool skip_special_tokens) {
            new (self) Detokenizer(tokenizer.impl, skip_special_tokens);
          },
          nb::arg("tokenizer"), nb::arg("skip_special_tokens") = true)
      .def(
          "push", [](Detokenizer& self, nb::handle ids) { return self.push(ids_from_python(ids, "ids")); },
          nb::arg("ids"))
      .def("finish", &Detokenizer::finish);
}

std::string render(const ChatTemplateRef& self, const Json& messages, const RenderOptions& options) {
  const GilRelease release;
  if (messages.is_string()) return self.impl->render_prompt(messages.as_string(), options);
  return self.impl->render(messages, options);
}

void bind_chat_template(nb::module_& m) {
  using T = ChatTemplateRef;
  nb::class_<T>(m, "ChatTemplate", "Messages to prompt text; immutable and thread-safe.")
      .def(
          "render",
          [](const T& self, nb::handle messages, bool add_generation_prompt, bool sequence_start,
             nb::handle tools, const nb::dict& extra, bool continue_final_message) {
            RenderOptions options;
            options.add_generation_prompt = add_generation_prompt;
            options.continue_final_message = continue_final_message;
            options.sequence_start = sequence_start;
            options.tools = json_from_python(tools, "tools");
            options.extra = json_from_python(extra, "template variables").as_object();
            return render(self, json_from_python(messages, "messages"), options);
          },
          nb::arg("messages"), nb::arg("add_generation_prompt") = true, nb::arg("sequence_start") = true,
          nb::arg("tools") = nb::none(), nb::arg("extra") = nb::dict(),
          nb::arg("continue_final_message") = false,
          "A str is one user message; a list holds role/content dicts.")
      .def_prop_ro("name", [](const T& self) { return self.impl->name(); })
      .def_prop_ro("stop_words", [](const T& self) { return self.impl->stop_words(); });
  m.def(
      "make_catalogue_template", [](const ChatTemplateConfig& c) { return T{make_catalogue_template(c)}; },
      nb::arg("config"));
  m.def(
      "make_jinja_template",
      [](std::string_view source, const std::string& bos, const std::string& eos) {
        return T{make_jinja_template(std::string(source), bos, eos)};
      },
      nb::arg("source"), nb::arg("bos_token") = "", nb::arg("eos_token") = "");
  m.def("chat_template_names", &chat_template_names, "Names of the built-in templates, sorted.");
}

}  // namespace

void bind_text(nb::module_& m) {
  bind_tokenizer(m);
  bind_detokenizer(m);
  bind_chat_template(m);
}

}  // namespace lmdeploy::python
