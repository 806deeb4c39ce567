// What asks for the objects of one kind of URL.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "source/remote/http.hpp"

namespace safeshuffle::source {

class HttpClient;

struct Pinned {
  std::string path;
  std::optional<std::vector<std::string>> names;  ///< in it, if they are known
};

/// Thread-safe. Paths are URLs without credentials; in errors they are shown as they are.
class Store {
 public:
  virtual ~Store() = default;

  /// For the object at a path.
  virtual HttpRequest request(const std::string& path) const = 0;

  /// After an answer other than success: whether a request for `path` that is made anew may succeed
  /// at once.
  virtual bool renew(const std::string& /*path*/, const HttpRequest& /*made*/,
                     const HttpResponse& /*answer*/) const {
    return false;
  }

  /// Whether objects that do not exist may be forbidden.
  virtual bool forbids_what_is_absent() const { return false; }

  /// What such an answer means, besides status and text; may be empty.
  virtual std::string explain(const HttpResponse& /*answer*/) const { return {}; }

  /// As of a Source.
  virtual std::vector<std::string> names_in(const std::string& directory) const = 0;

  /// Whether a path that has not the name of a file is that of a directory, even if that is empty.
  virtual bool is_directory(const std::string& /*path*/) const { return true; }

  /// Of a directory whose content may change, the same as it is now; `directory` if there is none.
  virtual Pinned pinned(const std::string& directory) const { return {directory, {}}; }
};

/// `headers`: "Name: value", to be sent with every request.
std::unique_ptr<Store> make_web_store(HttpClient& client, std::vector<std::string> headers);
std::unique_ptr<Store> make_s3_store(HttpClient& client, std::vector<std::string> headers);
std::unique_ptr<Store> make_hub_store(HttpClient& client, std::vector<std::string> headers);

/// The text that a request returns; `path` is used in errors only. Throws IoError.
std::string fetch_text(HttpClient& client, const Store& store, const std::string& path,
                       const std::function<HttpRequest()>& make);

/// `text` as part of a URL: all but letters, digits, "-._~" and those of `kept` as %XX.
std::string percent_encoded(std::string_view text, std::string_view kept = {});

/// The value of a variable of the environment; empty if it is not set.
std::string variable(const char* name);

/// `text` without the white space around it.
std::string trimmed(std::string_view text);

/// What is between the first `begin` in a text and the next `end`; empty if there is none.
std::string between(std::string_view text, std::string_view begin, std::string_view end);

/// What an answer says of an error as S3, and what speaks its language, says it; else empty.
std::string said_in(const HttpResponse& answer);

/// What a server says, as part of a message.
std::string excerpt_of(std::string_view said);

/// Throws the IoError of an answer other than success.
[[noreturn]] void raise_answer(const Store& store, const std::string& path,
                               const HttpResponse& answer,
                               std::optional<std::uint64_t> offset = {});

}  // namespace safeshuffle::source
