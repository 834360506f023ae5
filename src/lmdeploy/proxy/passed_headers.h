// Which headers a proxy passes on, in both directions.
#pragma once

#include "lmdeploy/http/message.h"

namespace lmdeploy::proxy {

/// The client's, without those of its connection, with X-Forwarded-For, -Host and -Proto and the request's
/// id.
http::Headers headers_to_node(const http::Request& request, bool tls);
/// The node's, without those of its connection, its type (which a Response has apart), and what the proxy
/// says itself: length, date, server, request id, CORS.
http::Headers headers_to_client(const http::Headers& headers);

}  // namespace lmdeploy::proxy
