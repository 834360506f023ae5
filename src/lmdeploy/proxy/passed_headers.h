// Which headers a proxy passes on, in both directions.
#pragma once

#include <string>

#include "lmdeploy/http/message.h"

namespace lmdeploy::proxy {

/// The client's, without those of its connection, with X-Forwarded-For, -Host and -Proto, the request's id
/// and `name` in Via.
http::Headers headers_to_node(const http::Request& request, bool tls, const std::string& name);
/// The node's, without those of its connection, its type (which a Response has apart), and what the proxy
/// says itself: length, date, server, request id, CORS.
http::Headers headers_to_client(const http::Headers& headers);

/// "Via: 1.1 NAME" (RFC 9110, 7.6.3), which a proxy puts into each request that it passes on or makes itself.
void add_via(http::Headers& headers, const std::string& name);
/// Whether the request has passed the proxy of that name, which no other one has: it goes round in a loop.
bool has_passed(const http::Headers& headers, const std::string& name);

}  // namespace lmdeploy::proxy
