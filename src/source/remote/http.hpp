// One HTTP request and its answer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace safeshuffle::source {

struct HttpRequest {
  std::string url;
  std::string method = "GET";
  std::vector<std::string> headers = {};  ///< "Name: value"
  std::vector<std::string> secrets = {};  ///< likewise, but only for this origin
  std::string sign_as = {};  ///< for Signature 4, "aws:amz:REGION:SERVICE"; empty: not signed.
                             ///< Of content, only that there is none can be signed
  std::string user = {};     ///< with it: "KEY:SECRET"
  std::string content = {};  ///< that is sent
  std::string secret = {};   ///< that the content has
  bool with_netrc = false;   ///< name and password from ~/.netrc
  bool through_proxy = true;
  std::chrono::milliseconds stall = std::chrono::seconds(15);  ///< longest time without a byte
  std::chrono::milliseconds most = std::chrono::minutes(5);    ///< of all of it
};

struct HttpResponse {
  long status = 0;             ///< 0 if there was no answer
  std::string failure = {};    ///< why the answer is not complete; empty if it is
  bool may_recover = false;    ///< whether another attempt may have one
  std::string url = {};        ///< of the request
  std::string first_url = {};  ///< of the first one, that redirects have led from
  std::map<std::string, std::string> headers = {};  ///< by name in lower case
  std::string redirect = {};                        ///< where a redirect leads to
  std::string body = {};                            ///< of what was not asked for by range
  std::size_t bytes = 0;                            ///< of the range, at the beginning of `to`

  /// Empty if there is none.
  std::string_view header(const std::string& name) const;
};

/// Whether two URLs are of the same scheme, host and port.
bool same_origin(const std::string& a, const std::string& b);

/// The most that is kept of a body that is not that of a range.
inline constexpr std::size_t most_body = std::size_t{256} << 20;

/// Makes one request at a time, over connections that it keeps.
class HttpConnection {
 public:
  /// Throws ConfigError if there is no libcurl.
  HttpConnection();
  ~HttpConnection();

  /// The answer; a range that was asked for (status 206) is written to the beginning of `to`. A
  /// request that has not been answered `race_after` its beginning is made once more on another
  /// connection, and the first answer counts; `raced` is set if that happened. Fails soon after
  /// `is_interrupted` is set. Follows no redirect.
  HttpResponse perform(const HttpRequest& request, std::span<std::byte> to,
                       std::optional<std::chrono::microseconds> race_after,
                       const std::atomic<bool>& is_interrupted, bool& raced);

 private:
  class Transfer;
  class Transfers;
  std::unique_ptr<Transfers> transfers_;
};

}  // namespace safeshuffle::source
