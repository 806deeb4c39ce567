#include "source/remote/client.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "core/deadline.hpp"
#include "source/remote/curl.hpp"

namespace safeshuffle::source {
namespace {

constexpr int most_redirects = 8;
constexpr unsigned most_attempts = 12;
constexpr unsigned most_first_attempts = 3;  // until a server has answered for the first time
constexpr unsigned most_renewals = 4;
constexpr std::chrono::milliseconds least_stall{1000};
constexpr std::size_t least_bytes_per_millisecond = 64;
constexpr std::size_t hopeless_bytes_per_millisecond = 1;
constexpr std::chrono::milliseconds first_pause{100};
constexpr std::chrono::milliseconds longest_pause{5000};
constexpr double megabyte = 1e6;
constexpr long least_error = 400;

// Of what says how fast a server is: those of headers and listings are mostly latency.
constexpr std::uint64_t least_measured = std::uint64_t{128} << 10;

std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view separators = " \t:;,=\"'";
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (separators.find(c) == std::string_view::npos) {
      words.back() += c;
    } else {
      words.emplace_back();
    }
  }
  return words;
}

// Also the token in "Bearer TOKEN", and both of "KEY:SECRET"; the longest first, which others may
// be parts of.
std::vector<std::string> secrets_of(const HttpRequest& request) {
  constexpr std::size_t shortest = 4;
  constexpr std::size_t shortest_part = 8;
  std::vector<std::string> values{request.user, request.secret};
  for (const std::string& header : request.secrets) {
    const std::size_t value = header.find_first_not_of(" \t", header.find(':') + 1);
    if (value != std::string::npos) values.push_back(header.substr(value));
  }
  std::vector<std::string> secrets;
  const auto add = [&](std::string text, std::size_t least) {
    if (text.size() >= least) secrets.push_back(std::move(text));
  };
  for (const std::string& value : values) {
    for (std::string& word : words_of(value)) add(std::move(word), shortest_part);
    add(value, shortest);
  }
  std::ranges::sort(secrets, std::ranges::greater{}, &std::string::size);
  return secrets;
}

// Servers may repeat what they were sent in what they say of it, which messages have.
void hide_secrets(const HttpRequest& request, HttpResponse& answer) {
  const auto hide = [](std::string& text, const std::string& secret) {
    for (std::size_t at = 0; (at = text.find(secret, at)) != std::string::npos;) {
      text.replace(at, secret.size(), "***");
    }
  };
  for (const std::string& secret : secrets_of(request)) {
    hide(answer.failure, secret);
    hide(answer.body, secret);
    for (auto& [name, value] : answer.headers) hide(value, secret);
  }
}

// Of a request that was cut off after all its time: with fewer, the rest would not come either.
std::uint64_t hopeless_bytes(const HttpRequest& request) {
  return static_cast<std::uint64_t>(request.most.count()) * hopeless_bytes_per_millisecond;
}

bool succeeded(const HttpResponse& response) {
  if (response.failure.empty()) return response.status >= 200 && response.status < 300;
  return response.status == 206 && response.bytes > 0 && response.may_recover;
}

bool is_worth_repeating(const HttpResponse& response) {
  if (!response.failure.empty()) return response.may_recover;
  switch (response.status) {
    case 408:
    case 425:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
    case 509:
    case 520:  // to 524: of Cloudflare
    case 521:
    case 522:
    case 523:
    case 524:
    case 529:
      return true;
    case 400:
      return response.body.find("<Code>RequestTimeout</Code>") != std::string::npos;
    default:
      return false;
  }
}

// Ranks that failed together do not come back together.
std::chrono::milliseconds jittered(std::chrono::milliseconds time) {
  thread_local std::minstd_rand random{std::random_device{}()};
  std::uniform_real_distribution<double> share(0.5, 1.0);
  return std::chrono::milliseconds(std::llround(static_cast<double>(time.count()) * share(random)));
}

// Seconds, or a date.
std::chrono::milliseconds retry_after(const HttpResponse& response) {
  const std::string text(response.header("retry-after"));
  if (text.empty()) return {};
  char* end = nullptr;
  const long seconds = std::strtol(text.c_str(), &end, 10);
  if (*end == '\0') return std::chrono::seconds(std::clamp(seconds, 0L, 3600L));
  const std::time_t date = curl().getdate(text.c_str(), nullptr);
  if (date == -1) return {};
  return std::chrono::seconds(std::clamp<long>(date - std::time(nullptr), 0, 3600));
}

// At most until `left` has passed, to try one last time.
std::chrono::milliseconds pause_before(unsigned attempt, const HttpResponse& response,
                                       std::chrono::milliseconds left) {
  const auto growing = std::min<std::chrono::milliseconds>(
      first_pause * (1 << std::min(attempt, 10U)), longest_pause);
  return std::min(retry_after(response) + jittered(growing), left);
}

bool is_redirect(const HttpResponse& response) {
  return response.failure.empty() && response.status >= 300 && response.status < 400 &&
         !response.redirect.empty();
}

}  // namespace

void Concurrency::enter() {
  std::unique_lock lock(mutex_);
  const std::uint64_t ticket = tickets_++;
  changed_.wait(lock, [&] { return ticket == next_ && in_progress_ < limit_; });
  ++next_;
  ++in_progress_;
  changed_.notify_all();
}

void Concurrency::leave(std::uint64_t bytes, std::chrono::duration<double> time) noexcept {
  const std::scoped_lock lock(mutex_);
  --in_progress_;
  if (bytes >= least_measured) {
    bytes_ += static_cast<double>(bytes);
    seconds_ += time.count();
    if (++ended_ >= limit_) adapt();
  }
  changed_.notify_all();
}

unsigned Concurrency::limit() const {
  const std::scoped_lock lock(mutex_);
  return limit_;
}

// What all together move in a second, if they are in progress all the time: their number, by the
// time that each takes. Where more are not faster, they are tried again later: others may have
// ended.
void Concurrency::adapt() noexcept {
  constexpr double clearly = 1.05;
  constexpr unsigned later = 16;
  const double rate = limit_ * bytes_ / std::max(seconds_, 1e-9);
  ended_ = 0;
  bytes_ = seconds_ = 0;
  const bool is_faster = rate >= clearly * best_rate_;
  if (!is_faster && limit_ > best_) {
    limit_ = best_;
    since_ = 0;
  } else if (is_faster || ++since_ == later) {
    best_ = limit_;
    best_rate_ = rate;
    limit_ = std::min(most_, limit_ + std::max(limit_ / 2, 1U));
    since_ = 0;
  }
}

void Durations::add(std::size_t bytes, std::chrono::microseconds time) {
  constexpr std::size_t most = 64;
  const double each =
      static_cast<double>(time.count()) / (1 + static_cast<double>(bytes) / megabyte);
  const std::scoped_lock lock(mutex_);
  if (recent_.size() < most) {
    recent_.push_back(each);
  } else {
    recent_[next_++ % most] = each;
  }
}

std::optional<std::chrono::microseconds> Durations::late(std::size_t bytes) const {
  constexpr std::size_t least = 16;
  constexpr double far_above = 4;
  constexpr std::chrono::microseconds shortest{500'000};
  std::vector<double> sorted;
  {
    const std::scoped_lock lock(mutex_);
    if (recent_.size() < least) return {};
    sorted = recent_;
  }
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  const double usual = *middle * (1 + static_cast<double>(bytes) / megabyte);
  return std::max(shortest, std::chrono::microseconds(std::llround(far_above * usual)));
}

HttpClient::HttpClient(ClientOptions options)
    : options_(options), concurrency_(std::max(options.most_connections, 1U)) {}
HttpClient::~HttpClient() = default;

HttpResponse HttpClient::fetch(const std::function<HttpRequest()>& make, std::span<std::byte> to,
                               const Renew& renew) {
  const core::Deadline patience(options_.patience);
  unsigned renewals = 0;
  for (unsigned attempt = 0;; ++attempt) {
    HttpRequest request = make();
    request.stall = std::min(request.stall, std::max(options_.patience / 3, least_stall));
    request.most = options_.patience + least_stall +
                   std::chrono::milliseconds(to.size() / least_bytes_per_millisecond);
    const core::Deadline all_its_time(request.most);
    HttpResponse response = follow(request, to);
    if (all_its_time.expired() && response.bytes < hopeless_bytes(request)) {
      response.may_recover = false;
    }
    if (succeeded(response)) return response;
    if (renew && renewals < most_renewals && renew(request, response)) {
      ++renewals;
      continue;
    }
    if (!is_worth_repeating(response) || attempt + 1 == most_attempts || patience.expired() ||
        is_interrupted_) {
      return response;
    }
    const auto pause = pause_before(attempt, response, patience.remaining());
    {
      const std::scoped_lock lock(mutex_);
      if (!was_answered_ && attempt + 1 == most_first_attempts) return response;
      ++requests_.repeated;
    }
    this->pause(pause);
  }
}

void HttpClient::pause(std::chrono::milliseconds time) const {
  constexpr std::chrono::milliseconds step{50};
  const core::Deadline deadline(time);
  while (!is_interrupted_ && !deadline.expired()) {
    std::this_thread::sleep_for(std::min(step, deadline.remaining()));
  }
}

HttpResponse HttpClient::follow(HttpRequest request, std::span<std::byte> to) {
  const std::string first_url = request.url;
  for (int redirects = 0;; ++redirects) {
    HttpResponse response = perform(request, to);
    response.first_url = first_url;
    if (!is_redirect(response)) return response;
    const bool is_same = same_origin(request.url, response.redirect);
    // What is sent, is signed, or tells of the machine, is for those who were asked.
    if (!request.content.empty() || !request.through_proxy) return response;
    if (!request.sign_as.empty() && !is_same) return response;
    if (redirects == most_redirects) {
      response.failure = "the server redirects again and again";
      return response;
    }
    if (!response.redirect.starts_with("http://") && !response.redirect.starts_with("https://")) {
      response.failure = "the server redirects to what is no web address";
      return response;
    }
    if (request.url.starts_with("https://") && !response.redirect.starts_with("https://")) {
      response.failure = "the server redirects to where nothing is encrypted";
      return response;
    }
    if (!is_same) {
      request.secrets.clear();
      request.with_netrc = false;
    }
    request.url = response.redirect;
  }
}

HttpResponse HttpClient::perform(const HttpRequest& request, std::span<std::byte> to) {
  concurrency_.enter();
  const core::Clock::time_point begun = core::Clock::now();
  HttpResponse response;
  bool raced = false;
  try {
    auto connection = take();
    const auto late = to.empty() ? std::nullopt : durations_.late(to.size());
    response = connection->perform(request, to, late, is_interrupted_, raced);
    give_back(std::move(connection));
  } catch (...) {
    concurrency_.leave(0, {});
    throw;
  }
  const auto time = core::Clock::now() - begun;
  concurrency_.leave(response.bytes, time);
  if (!response.failure.empty() || response.status >= least_error) hide_secrets(request, response);
  if (response.bytes == to.size() && !to.empty()) {
    durations_.add(response.bytes, std::chrono::duration_cast<std::chrono::microseconds>(time));
  }
  const std::scoped_lock lock(mutex_);
  ++requests_.made;
  if (raced) ++requests_.raced;
  was_answered_ = was_answered_ || response.status != 0;
  return response;
}

std::unique_ptr<HttpConnection> HttpClient::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  return std::make_unique<HttpConnection>();
}

void HttpClient::give_back(std::unique_ptr<HttpConnection> connection) {
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(connection));
}

Requests HttpClient::requests() const {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

}  // namespace safeshuffle::source
