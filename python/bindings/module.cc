// lmdeploy._core: the native side of the Python package. Type conversion only; the package (python/lmdeploy/)
// holds LMDeploy's names and rules.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>

#include "bindings/bindings.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/models/model.h"

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  using namespace lmdeploy;
  nb::set_leak_warnings(
      false);  // a pipeline that lives until the interpreter ends is no bug; atexit closes it
  m.doc() = "Native core of LMDeploy; use the names of the package lmdeploy instead.";
  m.attr("__version__") = LMDEPLOY_VERSION;
  python::bind_errors(m);
  python::bind_configs(m);
  python::bind_text(m);
  python::bind_grammar(m);
  python::bind_jinja(m);
  python::bind_hub(m);
  python::bind_results(m);
  python::bind_streams(m);
  python::bind_pipeline(m);
  m.def(
      "set_log_level", [](const std::string& name) { set_log_level(log_level_from_string(name)); },
      nb::arg("name"), "CRITICAL, ERROR, WARNING, INFO or DEBUG: what the native side prints to stderr.");
  m.def(
      "configure_log",
      [](const std::filesystem::path& file, bool with_pid, const std::string& color) {
        configure_log({color == "always"  ? LogColor::kAlways
                       : color == "never" ? LogColor::kNever
                                          : LogColor::kAuto,
                       file.string(), with_pid});
      },
      nb::arg("file"), nb::arg("with_pid"), nb::arg("color"),
      "Once, before anything is logged: also log to `file` (\"\": no), with the process id; color: auto, "
      "always, "
      "never.");
  m.def("supported_architectures", &supported_architectures,
        "Names of the model architectures that can be loaded, sorted.");
}
