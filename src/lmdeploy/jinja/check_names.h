// Finds filters and tests that do not exist before a template runs, where jinja2 does.
#pragma once

#include "lmdeploy/jinja/ast.h"

namespace lmdeploy::jinja {

/// Throws SyntaxFailure for an unknown name. In a branch of `if`, and not in a scope within it, the name may
/// be unknown: using it is a Failure when the branch is taken.
void check_names(const Body& body);

}  // namespace lmdeploy::jinja
