// Requests that are repeated until they succeed, over a limited number of connections.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "safeshuffle/requests.hpp"

#include "source/remote/http.hpp"

namespace safeshuffle::source {

/// How many requests are in progress at a time: more, as long as that makes them faster together.
/// Thread-safe.
class Concurrency {
 public:
  explicit Concurrency(unsigned most) noexcept
      : most_(most), limit_(std::min(most, first_limit)), best_(limit_) {}

  /// Waits until another request may begin, after those that waited before: what is needed first
  /// is asked for first.
  void enter();

  /// One that moved so many bytes has ended.
  void leave(std::uint64_t bytes, std::chrono::duration<double> time) noexcept;

  unsigned limit() const;

 private:
  void adapt() noexcept;

  static constexpr unsigned first_limit = 4;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const unsigned most_;
  unsigned limit_;
  unsigned in_progress_ = 0;
  std::uint64_t tickets_ = 0;  // given so far
  std::uint64_t next_ = 0;     // the ticket of who enters next
  unsigned ended_ = 0;         // since the limit was last considered
  double bytes_ = 0;           // of these
  double seconds_ = 0;         // that these took, added
  unsigned best_;              // the limit at which they were fastest
  double best_rate_ = 0;
  unsigned since_ = 0;  // how often it has been considered since more were not faster
};

/// How long requests take, to find those that take unusually long. Thread-safe.
class Durations {
 public:
  void add(std::size_t bytes, std::chrono::microseconds time);

  /// When a request of so many bytes is unusually late; empty if there is too little to tell.
  std::optional<std::chrono::microseconds> late(std::size_t bytes) const;

 private:
  mutable std::mutex mutex_;
  std::vector<double> recent_;  // microseconds for each request and megabyte
  std::size_t next_ = 0;
};

struct ClientOptions {
  unsigned most_connections = 16;
  std::chrono::milliseconds patience = std::chrono::seconds(60);  ///< without any byte
};

/// Thread-safe.
class HttpClient {
 public:
  explicit HttpClient(ClientOptions options);
  ~HttpClient();

  using Renew = std::function<bool(const HttpRequest& made, const HttpResponse& answer)>;

  /// `make` makes the request, anew for each attempt. `renew` tells of an answer other than success
  /// whether it may be another one at once, such as with new credentials. Follows redirects; what
  /// is secret goes to the first origin only. Returns an answer that is complete, or part of a
  /// range, or the last one that was neither.
  HttpResponse fetch(const std::function<HttpRequest()>& make, std::span<std::byte> to = {},
                     const Renew& renew = {});

  /// While it is set, requests end soon, also those in progress, and fail.
  void interrupt(bool is_set) noexcept { is_interrupted_ = is_set; }

  Requests requests() const;

 private:
  HttpResponse follow(HttpRequest request, std::span<std::byte> to);
  HttpResponse perform(const HttpRequest& request, std::span<std::byte> to);
  std::unique_ptr<HttpConnection> take();
  void give_back(std::unique_ptr<HttpConnection> connection);

  void pause(std::chrono::milliseconds time) const;

  const ClientOptions options_;
  std::atomic<bool> is_interrupted_ = false;
  Concurrency concurrency_;
  Durations durations_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<HttpConnection>> idle_;
  Requests requests_;
  bool was_answered_ = false;
};

}  // namespace safeshuffle::source
