#include "lmdeploy/hub/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <mutex>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/hub/names.h"

namespace lmdeploy {
namespace {

constexpr size_t kMaxRedirects = 10;
constexpr size_t kMaxHeaders = 500;
constexpr size_t kMaxErrorBody = 4096;

struct UrlCleanup {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlCleanup>;

Url parse_url(const std::string& text) {
  Url url(curl_url());
  // Only http and https, and no user:password@ that would go to the host.
  if (!url || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_DISALLOW_USER) != CURLUE_OK)
    return nullptr;
  return url;
}

std::string part_of(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return "";
  std::string copy = text;
  curl_free(text);
  return copy;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/// Failures that the next try may not meet. A certificate that does not fit is not among them.
bool may_pass(CURLcode code) {
  constexpr std::array kPassing = {CURLE_COULDNT_RESOLVE_HOST,
                                   CURLE_COULDNT_RESOLVE_PROXY,
                                   CURLE_COULDNT_CONNECT,
                                   CURLE_OPERATION_TIMEDOUT,
                                   CURLE_PARTIAL_FILE,
                                   CURLE_GOT_NOTHING,
                                   CURLE_SEND_ERROR,
                                   CURLE_RECV_ERROR,
                                   CURLE_HTTP2,
                                   CURLE_HTTP2_STREAM,
                                   CURLE_SSL_CONNECT_ERROR,
                                   CURLE_WEIRD_SERVER_REPLY};
  return std::find(kPassing.begin(), kPassing.end(), code) != kPassing.end();
}

void init_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

class HeaderList {
 public:
  ~HeaderList() { curl_slist_free_all(list_); }
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  void add(const std::string& line) { list_ = curl_slist_append(list_, line.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

}  // namespace

std::string url_origin(const std::string& url) {
  const Url parsed = parse_url(url);
  if (!parsed) return "";
  const std::string scheme = part_of(parsed, CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return "";
  return cat(scheme, "://", lower(part_of(parsed, CURLUPART_HOST)), ":",
             part_of(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string resolve_url(const std::string& base, const std::string& location) {
  const Url url = parse_url(base);
  if (!url || curl_url_set(url.get(), CURLUPART_URL, location.c_str(), CURLU_DISALLOW_USER) != CURLUE_OK)
    return "";
  const std::string target = part_of(url, CURLUPART_URL);
  return url_origin(target).empty() ? "" : target;
}

std::string_view HttpReply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : found->second;
}

/// What the callbacks of one request share. No exception may pass through libcurl's frames.
struct HttpClient::Exchange {
  HttpReply reply;
  const HttpSink* sink;
  const std::function<void()>* poll;
  CURL* curl;
  std::exception_ptr thrown;

  template <typename Call>
  bool guarded(Call call) {
    try {
      call();
      return true;
    } catch (...) {
      thrown = std::current_exception();
      return false;
    }
  }

  void take_header(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // a new answer, after 100 Continue for instance
      reply.headers.clear();
      return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || reply.headers.size() >= kMaxHeaders) return;
    reply.headers[lower(std::string(line.substr(0, colon)))] = trimmed(line.substr(colon + 1));
  }

  void take_body(std::string_view bytes) {
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply.status);
    if (reply.status >= 200 && reply.status < 300) {
      if (*sink) (*sink)(reply, bytes);
    } else if (reply.error_body.size() < kMaxErrorBody) {
      reply.error_body += bytes.substr(0, kMaxErrorBody - reply.error_body.size());
    }
  }

  static size_t on_header(char* data, size_t, size_t size, void* self) {
    auto& exchange = *static_cast<Exchange*>(self);
    return exchange.guarded([&] { exchange.take_header({data, size}); }) ? size : 0;
  }
  static size_t on_body(char* data, size_t, size_t size, void* self) {
    auto& exchange = *static_cast<Exchange*>(self);
    // 0 would mean success for an empty piece.
    return exchange.guarded([&] { exchange.take_body({data, size}); }) ? size : size + 1;
  }
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& exchange = *static_cast<Exchange*>(self);
    return *exchange.poll && !exchange.guarded(*exchange.poll) ? 1 : 0;
  }
};

HttpClient::HttpClient(const HubPatience& patience, HubCertificates certificates, std::function<void()> poll)
    : patience_(patience), certificates_(std::move(certificates)), poll_(std::move(poll)) {
  init_curl();
  curl_ = curl_easy_init();
  if (curl_ == nullptr) throw std::bad_alloc();
}

HttpClient::~HttpClient() { curl_easy_cleanup(curl_); }

HttpReply HttpClient::send_once(const HttpRequest& request, const HttpSink& sink) {
  CURL* curl = curl_;
  Exchange exchange{{}, &sink, &poll_, curl, nullptr};
  exchange.reply.url = request.url;
  std::array<char, CURL_ERROR_SIZE> message{};
  HeaderList headers;
  headers.add("Accept-Encoding: identity");  // sizes and ranges are those of the file
  if (!request.secret.empty()) headers.add(request.secret);
  if (request.begin > 0) headers.add(cat("Range: bytes=", request.begin, "-"));
  if (!request.json.empty()) headers.add("Content-Type: application/json");

  curl_easy_reset(curl);  // keeps connections
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOBODY, request.head ? 1L : 0L);
  if (!request.json.empty()) {
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.json.data());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.json.size()));
  }
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "lmdeploy/" LMDEPLOY_VERSION);
  if (!certificates_.file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, certificates_.file.c_str());
  if (!certificates_.folder.empty()) curl_easy_setopt(curl, CURLOPT_CAPATH, certificates_.folder.c_str());
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(patience_.connect_timeout_ms));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(patience_.stall_timeout_s));
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 256L << 10);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, message.data());
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, Exchange::on_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Exchange::on_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, Exchange::on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &exchange);
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  if (exchange.thrown) std::rethrow_exception(exchange.thrown);

  HttpReply reply = std::move(exchange.reply);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply.status);
  curl_off_t retry_after = 0;
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &retry_after);
  reply.retry_after_s = retry_after;
  if (code != CURLE_OK) {
    reply.trouble = message[0] != '\0' ? message.data() : curl_easy_strerror(code);
    // Without a network nobody wants to wait for several tries.
    const bool no_connection = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT ||
                               code == CURLE_COULDNT_RESOLVE_PROXY;
    reply.retryable = may_pass(code) && (reached_ || !no_connection);
  }
  reached_ = reached_ || reply.status != 0;
  return reply;
}

HttpReply HttpClient::send(const HttpRequest& request, const HttpSink& sink) {
  HttpRequest next = request;
  std::vector<HttpReply> redirects;
  while (true) {
    HttpReply reply = send_once(next, sink);
    const std::string location(reply.header("location"));
    if (!reply.trouble.empty() || !is_redirect(reply.status) || location.empty()) {
      reply.redirects = std::move(redirects);
      return reply;
    }
    const std::string target = resolve_url(next.url, location);
    if (target.empty())
      throw Error(ErrorCode::kInvalidData, cat(next.url, ": it redirects to ", shown(location),
                                               ", which is not a plain http or https address"));
    if (next.url.starts_with("https:") && target.starts_with("http:"))
      throw Error(ErrorCode::kInvalidData,
                  cat(next.url, ": it redirects to ", target, ", which is not encrypted"));
    if (redirects.size() >= kMaxRedirects)
      throw Error(ErrorCode::kInvalidData, cat(request.url, ": more than ", kMaxRedirects, " redirects"));
    if (url_origin(target) != url_origin(next.url)) {
      if (request.stay) {
        reply.redirects = std::move(redirects);
        return reply;
      }
      next.secret.clear();
    }
    next.url = target;
    redirects.push_back(std::move(reply));
  }
}

}  // namespace lmdeploy
