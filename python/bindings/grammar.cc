// Grammars and matchers, for programs that draw their own tokens, and for tests.
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/handles.h"
#include "lmdeploy/text/grammar/compile.h"

namespace lmdeploy::python {
namespace {

using grammar::CompiledGrammar;
using grammar::Matcher;
using grammar::Vocabulary;
using Mask = nb::ndarray<uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct VocabularyRef {
  std::shared_ptr<const Vocabulary> impl;
};
struct GrammarRef {
  std::shared_ptr<const CompiledGrammar> impl;
};

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

VocabularyRef vocabulary_of_bytes(const nb::list& tokens) {
  std::vector<std::string> bytes;
  for (nb::handle token : tokens) bytes.emplace_back(view(nb::cast<nb::bytes>(token)));
  return {std::make_shared<const Vocabulary>(std::move(bytes))};
}

GrammarRef compile(nb::handle response_format, const VocabularyRef& vocabulary) {
  const Json json = format_from_python(response_format, "response_format");
  const GilRelease release;
  return {
      grammar::compile(read_response_format(json, "response_format"), vocabulary.impl, "response_format")};
}

nb::bytes forced_bytes(Matcher& self, size_t most) {
  const std::string bytes = self.forced_bytes(most);
  return nb::bytes(bytes.data(), bytes.size());
}

}  // namespace

void bind_grammar(nb::module_& m) {
  nb::class_<VocabularyRef>(m, "Vocabulary", "The bytes of a tokenizer's tokens; immutable.")
      .def_static(
          "of", [](const TokenizerRef& tokenizer) { return VocabularyRef{Vocabulary::of(*tokenizer.impl)}; },
          nb::arg("tokenizer"), ReleaseGil())
      .def_static("of_bytes", &vocabulary_of_bytes, nb::arg("tokens"),
                  "`tokens[id]`: the bytes of token id; empty for ids without text.")
      .def("__len__", [](const VocabularyRef& self) { return self.impl->size(); });
  nb::class_<Matcher>(m, "Matcher", "How far one answer has got in a grammar.")
      .def("copy", [](const Matcher& self) { return self; })
      .def(
          "fill_mask",
          [](Matcher& self, const Mask& mask) {
            self.fill_mask({mask.data(), mask.shape(0)});
          },
          nb::arg("mask"),
          "Sets bit id % 32 of mask[id // 32] for the tokens that may come, clears all others.")
      .def("accept", &Matcher::accept, nb::arg("token"), "False, and nothing changes: it may not come.")
      .def(
          "accept_bytes",
          [](Matcher& self, const nb::bytes& bytes) { return self.accept_bytes(view(bytes)); },
          nb::arg("bytes"))
      .def("can_stop", &Matcher::can_stop, "What has come is whole.")
      .def("is_complete", &Matcher::is_complete, "It is, and nothing may follow.")
      .def("forced_bytes", &forced_bytes, nb::arg("most") = 256, "What must come next.");
  nb::class_<GrammarRef>(m, "Grammar", "A response_format over a vocabulary; thread-safe.")
      .def_static("compile", &compile, nb::arg("response_format"), nb::arg("vocabulary"))
      .def_prop_ro("warnings", [](const GrammarRef& self) { return self.impl->warnings(); })
      .def("matcher", [](const GrammarRef& self) { return self.impl->matcher(); });
}

}  // namespace lmdeploy::python
