// ResponseGroup (text) and RequestGroup (token ids): running requests that one Python iterator reads.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/signals.h"
#include "bindings/stream_group.h"

namespace lmdeploy::python {
namespace {

using ResponseGroup = StreamGroup<ResponseStream>;
using RequestGroup = StreamGroup<RequestHandle>;

size_t submit(ResponseGroup& group, nb::handle prompt, const GenerationConfig& gen_config,
              const RunOptions& options) {
  const Prompt native_prompt = prompt_from_python(prompt);
  const GilRelease release;
  return group.add(group.pipeline().get().submit(native_prompt, gen_config, options));
}

size_t chat(ResponseGroup& group, const SessionRef& session, nb::handle prompt,
            const GenerationConfig& gen_config, const RunOptions& options) {
  const std::string text = utf8_from_python(prompt, "prompt");
  const std::shared_ptr<ChatSession> held = session.impl;  // forget() may replace it meanwhile
  const GilRelease release;
  return group.add(group.pipeline().get().chat(*held, text, gen_config, options), held);
}

size_t submit_request(RequestGroup& group, const Request& request) {
  return group.add(group.pipeline().with_engine([&](Engine& engine) { return engine.submit(request); }));
}

/// What both kinds of group have.
template <typename Group>
nb::class_<Group> bind_group(nb::module_& m, const char* name, const char* doc) {
  return nb::class_<Group>(m, name, nb::is_weak_referenceable(), doc)
      .def(nb::init<std::shared_ptr<PipelineRef>>(), nb::arg("pipeline"))
      .def(
          "next", [](Group& self, std::optional<double> timeout) { return next_with_signals(self, timeout); },
          nb::arg("timeout") = nb::none(),
          "(index of the stream, its next piece). None after `timeout` seconds or when all streams have "
          "ended. "
          "Ctrl-C cancels all of them.")
      .def("cancel", &Group::cancel, nb::arg("index"), ReleaseGil())
      .def("cancel_all", &Group::cancel_all, ReleaseGil())
      .def("fileno", &Group::fileno, ReleaseGil(),
           "A descriptor that is readable while next() has something.")
      .def_prop_ro("num_open", &Group::num_open, ReleaseGil());
}

void forget(SessionRef& session) {
  auto fresh = std::make_shared<ChatSession>();
  fresh->session_id = session.impl->session_id;
  session.impl = std::move(fresh);
}

void bind_session(nb::module_& m) {
  nb::class_<SessionRef>(m, "ChatSession", "A conversation whose keys and values stay in the engine.")
      .def_prop_ro("session_id", [](const SessionRef& self) { return self.impl->session_id; })
      .def_prop_ro(
          "step", [](const SessionRef& self) { return self.impl->step; }, "Tokens that the session holds.")
      .def("forget", &forget, "Begins anew under the same id; a turn that runs keeps the old state.");
}

}  // namespace

void bind_streams(nb::module_& m) {
  bind_session(m);
  bind_group<ResponseGroup>(m, "ResponseGroup", "Prompts that run together, read piece by piece.")
      .def("submit", &submit, nb::arg("prompt"), nb::arg("gen_config"), nb::arg("options"))
      .def("chat", &chat, nb::arg("session"), nb::arg("prompt"), nb::arg("gen_config"), nb::arg("options"));
  bind_group<RequestGroup>(m, "RequestGroup", "Engine requests that run together, read piece by piece.")
      .def("submit", &submit_request, nb::arg("request"), ReleaseGil());
}

}  // namespace lmdeploy::python
