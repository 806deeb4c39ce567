#include "source/remote/http.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/deadline.hpp"
#include "source/remote/curl.hpp"
#include "source/remote/store.hpp"

namespace safeshuffle::source {
namespace {

constexpr long receive_buffer = 512L << 10;
constexpr std::chrono::milliseconds poll_step{100};

// libcurl signs headers from 7.87 on, and those that S3 demands by itself from 8.0 on.
constexpr unsigned least_signing_version = 0x075700;
constexpr const char* hash_of_nothing =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

bool is_success(long status) {
  return status >= 200 && status < 300;
}

template <typename T>
T* require(T* made) {
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

// Certificates of authorities, as other programs are told of them.
const char* given_authorities() {
  for (const char* const name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "AWS_CA_BUNDLE"}) {
    const char* const path = std::getenv(name);
    if (path != nullptr && *path != '\0') return path;
  }
  return nullptr;
}

// What a request made anew may not meet again.
bool may_recover_from(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

struct UrlDeleter {
  void operator()(CURLU* url) const { curl().url_cleanup(url); }
};

std::string url_part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl().url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return {};
  std::string result(text);
  curl().free(text);
  return result;
}

std::array<std::string, 3> origin_of(const std::string& text) {
  const std::unique_ptr<CURLU, UrlDeleter> url(require(curl().url()));
  if (curl().url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return {text, "", ""};
  return {url_part(url.get(), CURLUPART_SCHEME), lower(url_part(url.get(), CURLUPART_HOST)),
          url_part(url.get(), CURLUPART_PORT)};
}

}  // namespace

std::string_view HttpResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : found->second;
}

bool same_origin(const std::string& a, const std::string& b) {
  return origin_of(a) == origin_of(b);
}

// A request on its way.
class HttpConnection::Transfer {
 public:
  Transfer() : curl_(curl()), easy_(require(curl_.easy_init())) {}
  ~Transfer() {
    curl_.easy_cleanup(easy_);
    curl_.slist_free_all(headers_);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  CURL* easy() const noexcept { return easy_; }

  /// Returns whether it can be made; otherwise `finish` tells why.
  bool prepare(const HttpRequest& request, std::span<std::byte> to) {
    response_ = {};
    thrown_ = nullptr;
    response_.url = request.url;
    refusal_.clear();
    error_[0] = '\0';
    to_ = to;
    renew();
    add_headers(request.headers);
    add_headers(request.secrets);
    if (!request.sign_as.empty()) headers_ = require(curl_.slist_append(headers_, hash_of_nothing));
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PATH_AS_IS, 1L);
    if (!request.content.empty()) {
      set(CURLOPT_POSTFIELDSIZE, static_cast<long>(request.content.size()));
      set(CURLOPT_COPYPOSTFIELDS, request.content.c_str());
    }
    if (request.method == "HEAD") set(CURLOPT_NOBODY, 1L);
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    set(CURLOPT_HTTPHEADER, headers_);
    set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    set(CURLOPT_USERAGENT, "safeshuffle/" SAFESHUFFLE_VERSION);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_BUFFERSIZE, receive_buffer);
    set(CURLOPT_ERRORBUFFER, error_.data());
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.stall.count()));
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.most.count()));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, std::max<long>(request.stall.count() / 1000, 1));
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
    set(CURLOPT_WRITEDATA, this);
    if (!request.through_proxy) set(CURLOPT_NOPROXY, "*");
    if (const char* const authorities = given_authorities()) set(CURLOPT_CAINFO, authorities);
    if (request.with_netrc) set(CURLOPT_NETRC, long{CURL_NETRC_OPTIONAL});
    if (!request.sign_as.empty()) sign(request);
    return refusal_.empty();
  }

  HttpResponse finish(CURLcode code) {
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    curl_.easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &response_.status);
    char* redirect = nullptr;
    curl_.easy_getinfo(easy_, CURLINFO_REDIRECT_URL, &redirect);
    if (redirect != nullptr) response_.redirect = redirect;
    if (!refusal_.empty()) {
      response_.failure = refusal_;
    } else if (code != CURLE_OK) {
      response_.failure = error_[0] != '\0' ? error_.data() : curl_.easy_strerror(code);
      response_.may_recover = may_recover_from(code);
    }
    return std::move(response_);
  }

  bool has_success() const {
    long status = 0;
    curl_.easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
    return is_success(status);
  }

  /// What has arrived, of a request with this `to`.
  std::span<const std::byte> range() const { return to_.first(response_.bytes); }

 private:
  // Resetting does not undo all: after some failures, libcurl keeps the buffer, and refuses a size.
  void renew() {
    curl_.easy_cleanup(std::exchange(easy_, nullptr));
    easy_ = require(curl_.easy_init());
    curl_.slist_free_all(std::exchange(headers_, nullptr));
  }

  template <typename Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_.easy_setopt(easy_, option, value);
    if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
    if (code != CURLE_OK && refusal_.empty()) refusal_ = curl_.easy_strerror(code);
  }

  // Without the method, libcurl would send the secret as a password.
  void sign(const HttpRequest& request) {
    if (curl_.version_info(CURLVERSION_NOW)->version_num < least_signing_version) {
      refuse("libcurl is too old to sign requests: at least 7.87 is needed");
      return;
    }
    set(CURLOPT_AWS_SIGV4, request.sign_as.c_str());
    if (refusal_.empty()) set(CURLOPT_USERPWD, request.user.c_str());
  }

  void add_headers(const std::vector<std::string>& headers) {
    for (const std::string& header : headers) {
      headers_ = require(curl_.slist_append(headers_, header.c_str()));
    }
  }

  static std::size_t on_header(const char* data, std::size_t, std::size_t bytes, void* self) {
    return static_cast<Transfer*>(self)->guarded([&](Transfer& transfer) {
      transfer.take_header({data, bytes});
      return true;
    })
               ? bytes
               : 0;
  }

  static std::size_t on_body(const char* data, std::size_t, std::size_t bytes, void* self) {
    return static_cast<Transfer*>(self)->guarded([&](Transfer& transfer) {
      return transfer.take_body({data, bytes});
    })
               ? bytes
               : 0;
  }

  // Exceptions must not leave a callback.
  template <class Take>
  bool guarded(const Take& take) noexcept {
    try {
      return take(*this);
    } catch (...) {
      thrown_ = std::current_exception();
      return false;
    }
  }

  // Before those of the last answer, there may be some of interim ones.
  void take_header(std::string_view line) {
    if (line.starts_with("HTTP/")) response_.headers.clear();
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    response_.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  }

  bool take_body(std::string_view bytes) {
    long status = 0;
    curl_.easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
    if (status == 206) return take_range(bytes);
    // All of a short object may come in place of its beginning.
    if (status == 200 && !to_.empty() && response_.body.size() + bytes.size() > to_.size()) {
      return refuse("the server ignores the range that was asked for: it must support HTTP ranges");
    }
    if (response_.body.size() + bytes.size() > most_body) return refuse("the answer is too long");
    response_.body += bytes;
    return true;
  }

  bool take_range(std::string_view bytes) {
    const std::string length(response_.header("content-length"));
    const bool is_longer = std::strtoull(length.c_str(), nullptr, 10) > to_.size();
    if (is_longer || bytes.size() > to_.size() - response_.bytes) {
      return refuse("the server sends more than the range that was asked for");
    }
    std::ranges::copy(std::as_bytes(std::span(bytes)), to_.subspan(response_.bytes).begin());
    response_.bytes += bytes.size();
    return true;
  }

  bool refuse(std::string cause) {
    refusal_ = std::move(cause);
    return false;
  }

  const CurlLibrary& curl_;
  CURL* easy_;
  curl_slist* headers_ = nullptr;
  std::span<std::byte> to_;
  HttpResponse response_;
  std::string refusal_;
  std::exception_ptr thrown_;  // by a callback
  std::array<char, CURL_ERROR_SIZE> error_{};
};

// Those of one request, which use the same kept connections.
class HttpConnection::Transfers {
 public:
  Transfers() : curl_(curl()), multi_(require(curl_.multi_init())) {}
  ~Transfers() {
    stop(first_);
    stop(second_);
    curl_.multi_cleanup(multi_);
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  HttpResponse perform(const HttpRequest& request, std::span<std::byte> to,
                       std::optional<std::chrono::microseconds> race_after,
                       const std::atomic<bool>& is_interrupted, bool& raced) {
    raced = false;
    const core::Clock::time_point begun = core::Clock::now();
    if (!start(first_, request, to)) return first_.transfer.finish(CURLE_OK);
    for (;;) {
      if (auto response = finished(to)) {
        second_bytes_ = {};
        return *std::move(response);
      }
      if (is_interrupted) return interrupted();
      if (race_after && !raced && core::Clock::now() - begun >= *race_after) {
        raced = true;
        second_bytes_.resize(to.size());
        start(second_, request, second_bytes_);
      }
      wait(race_after && !raced ? begun + *race_after : core::Clock::time_point::max());
    }
  }

 private:
  struct Slot {
    Transfer transfer;
    bool in_progress = false;
  };

  bool start(Slot& slot, const HttpRequest& request, std::span<std::byte> to) {
    if (!slot.transfer.prepare(request, to)) return false;
    check(curl_.multi_add_handle(multi_, slot.transfer.easy()));
    slot.in_progress = true;
    return true;
  }

  HttpResponse interrupted() {
    stop(first_);
    stop(second_);
    second_bytes_ = {};
    return {.failure = "the request was cancelled"};
  }

  static void check(CURLMcode code) {
    if (code == CURLM_OUT_OF_MEMORY) throw std::bad_alloc();
    if (code != CURLM_OK) throw InternalError("libcurl fails: " + std::to_string(code));
  }

  void stop(Slot& slot) {
    if (!std::exchange(slot.in_progress, false)) return;
    curl_.multi_remove_handle(multi_, slot.transfer.easy());
  }

  // The answer, if there is one; of two, the first complete one, or else the last.
  std::optional<HttpResponse> finished(std::span<std::byte> to) {
    int running = 0;
    check(curl_.multi_perform(multi_, &running));
    int left = 0;
    while (const CURLMsg* const message = curl_.multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const bool is_first = message->easy_handle == first_.transfer.easy();
      Slot& slot = is_first ? first_ : second_;
      Slot& other = is_first ? second_ : first_;
      const CURLcode code = message->data.result;
      stop(slot);
      const bool is_good = code == CURLE_OK && slot.transfer.has_success();
      if (!is_good && other.in_progress) continue;
      stop(other);
      if (!is_first) std::ranges::copy(slot.transfer.range(), to.begin());
      return slot.transfer.finish(code);
    }
    return {};
  }

  void wait(core::Clock::time_point until) {
    const auto left = until - core::Clock::now();
    const auto step =
        std::clamp<core::Clock::duration>(left, std::chrono::milliseconds(1), poll_step);
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(step).count();
    check(curl_.multi_poll(multi_, nullptr, 0, static_cast<int>(milliseconds), nullptr));
  }

  const CurlLibrary& curl_;
  CURLM* const multi_;
  Slot first_;
  Slot second_;
  std::vector<std::byte> second_bytes_;
};

HttpConnection::HttpConnection() : transfers_(std::make_unique<Transfers>()) {}
HttpConnection::~HttpConnection() = default;

HttpResponse HttpConnection::perform(const HttpRequest& request, std::span<std::byte> to,
                                     std::optional<std::chrono::microseconds> race_after,
                                     const std::atomic<bool>& is_interrupted, bool& raced) {
  return transfers_->perform(request, to, race_after, is_interrupted, raced);
}

}  // namespace safeshuffle::source
