// What the files of lmdeploy._core share: one bind_ function each, and conversions between Python and native
// values. Arguments that can be large come as handles or views: nanobind's casters end the process when
// memory does.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "bindings/gil.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy::python {

namespace nb = nanobind;

void bind_errors(nb::module_& m);
void bind_configs(nb::module_& m);
void bind_text(nb::module_& m);
void bind_jinja(nb::module_& m);
void bind_grammar(nb::module_& m);
void bind_hub(nb::module_& m);
void bind_results(nb::module_& m);
void bind_streams(nb::module_& m);
void bind_pipeline(nb::module_& m);

/// None, bool, int, float, str, and dicts, lists and tuples of those. Throws Error(kInvalidArgument) naming
/// the place (`where` is its root: "messages").
Json json_from_python(nb::handle value, const std::string& where);
/// The same for a response_format: its integers beyond 64 bits become the double that spells them.
Json format_from_python(nb::handle value, const std::string& where);
/// The UTF-8 of a str. Throws Error(kInvalidArgument) for lone surrogates.
std::string utf8_from_python(nb::handle text, const std::string& where);
/// The UTF-8 of a str, with lone surrogates escaped: for messages. What cannot be written at all is "?".
std::string printable(nb::handle text);
/// The name of `value`'s type, for messages.
std::string type_name_of(nb::handle value);
/// Token ids from any sequence of ints or an integer array. Throws Error(kInvalidArgument).
std::vector<int> ids_from_python(nb::handle ids, const std::string& where);
/// str: text; a sequence of ints: ids; anything else: messages, which errors call `where`.
Prompt prompt_from_python(nb::handle prompt, const std::string& where = "messages");
/// Callables (input_ids, scores) -> scores. They are called on the engine's thread, which takes the GIL for
/// it: nobody may wait for that thread with the GIL.
std::vector<LogitsProcessor> processors_from_python(const nb::list& callables);
/// A float32 array [values.size() / width, width] that owns `values`; None when there are none.
nb::object rows_to_numpy(std::vector<float>&& values, int64_t width);

}  // namespace lmdeploy::python
