// A JSON schema as rules of a grammar.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/text/grammar/grammar.h"
#include "lmdeploy/text/grammar/schema_document.h"

namespace lmdeploy::grammar {

struct SchemaOptions {
  bool strict = false;
  bool compact = false;
};

/// What there is to say about a schema beside its rule.
struct SchemaNotes {
  std::vector<std::string> warnings;
  std::string limit;  // the first place where no value is left because of a limit of ours; empty: nowhere
};

/// The rule of the JSON texts that `schema` admits; docs/structured_output.md says which. `where` begins
/// every message. Adds to `notes`. Throws Error(kInvalidArgument) for a schema that is malformed,
/// contradictory, too large, or that could be violated.
NodeId add_schema(GrammarBuilder& builder, const Json& schema, SchemaOptions options, std::string_view where,
                  SchemaNotes& notes);

}  // namespace lmdeploy::grammar
