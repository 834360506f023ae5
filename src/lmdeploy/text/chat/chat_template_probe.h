// Finds out what a Jinja template understands by rendering small conversations with it.
#pragma once

#include <string>

#include "lmdeploy/jinja/template.h"

namespace lmdeploy {

struct TemplateTraits {
  enum class Arguments { kAsGiven, kMapping, kText };
  enum class NoContent { kEmptyText, kNull, kMissing };

  bool wants_parts = false;                      // content must be a list of parts; text is not printed
  bool takes_parts = false;                      // a list of parts is printed part by part
  Arguments arguments = Arguments::kAsGiven;     // what kind of tool-call arguments is printed as JSON
  NoContent no_content = NoContent::kEmptyText;  // beside tool calls: the form with which they are printed
  bool drops_tool_results = false;               // messages of role tool leave no trace
  bool refuses_developer = false;                // messages of role developer leave no trace or fail
};

/// `base`: the variables that every rendering gets (bos_token, eos_token, ...).
TemplateTraits probe_template(const jinja::Template& jinja, const JsonObject& base);

}  // namespace lmdeploy
