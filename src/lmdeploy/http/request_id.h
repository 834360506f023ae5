// The name that a request has in answers and logs.
#pragma once

#include <string>

#include "lmdeploy/http/message.h"

namespace lmdeploy::http {

/// The client's x-request-id if it is 1 to 128 letters, digits, '-', '_', '.' or ':', else 32 random hex
/// digits.
std::string request_id(const Headers& headers);

/// `length` random characters of [0-9A-Za-z].
std::string random_name(size_t length);

}  // namespace lmdeploy::http
