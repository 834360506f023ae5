// Models of a hub by name.
#include "lmdeploy/hub/hub.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <cstdlib>
#include <filesystem>

#include "bindings/bindings.h"
#include "bindings/paced_callback.h"

namespace lmdeploy::python {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// As lmdeploy::fetch_model(), set up by the environment. Ctrl-C ends it; what has arrived is kept.
std::filesystem::path fetch(const std::filesystem::path& model, const std::string& revision,
                            const std::filesystem::path& download_dir, bool weights, nb::handle progress) {
  const ModelRequest request = {model.string(), revision, download_dir.string(), weights};
  const HubConfig config = is_hub_model(request.model) ? hub_config(variable) : HubConfig();
  PacedCallback paced(progress);
  HubHooks hooks;
  hooks.progress = [&](const HubStatus& status) {
    paced(status.done_bytes == status.total_bytes, status.done_bytes, status.total_bytes);
  };
  const GilRelease release;
  return fetch_model(request, config, hooks);
}

}  // namespace

void bind_hub(nb::module_& m) {
  m.def("fetch_model", &fetch, nb::arg("model"), nb::arg("revision") = "", nb::arg("download_dir") = "",
        nb::arg("weights") = true, nb::arg("progress") = nb::none(),
        "The path of a model's files: `model` if there is such a path, otherwise where they were downloaded "
        "to;\n"
        "progress(done_bytes, total_bytes) is called now and then.");
}

}  // namespace lmdeploy::python
