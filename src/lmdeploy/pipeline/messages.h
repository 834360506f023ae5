// Chat messages from outside: checked, and brought into the form that templates take.
#pragma once

#include "lmdeploy/core/json.h"

namespace lmdeploy {

/// `messages`: an array of objects with a `role` (text) and a `content`: text, null (for a message with
/// tool_calls) or an array of parts, of which the text ones are joined by newlines. Other keys pass through.
/// Throws Error(kInvalidArgument) naming index and field, Error(kUnsupported) for a part that is not text.
Json normalize_messages(const Json& messages);

}  // namespace lmdeploy
