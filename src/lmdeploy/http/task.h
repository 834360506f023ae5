// Handlers are coroutines of Boost.Asio. This header is all of Asio that they include.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace lmdeploy::http {

/// Runs on the strand of its connection: what it waits for is resumed there, one thing at a time.
template <typename T = void>
using Task = boost::asio::awaitable<T>;

}  // namespace lmdeploy::http
