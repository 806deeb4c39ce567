#include "source/remote/remote.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "safeshuffle/error.hpp"

#include "source/remote/client.hpp"
#include "source/remote/store.hpp"
#include "source/select.hpp"

namespace safeshuffle::source {
namespace {

// What the first request of an object asks for: most headers, configurations and short indexes.
constexpr std::size_t first_bytes = std::size_t{64} << 10;

// Also what a range that no longer exists says of the object: "bytes */0".
struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t size = 0;
};

// "bytes 0-65535/1048576"
std::optional<ContentRange> parse_range(std::string_view text) {
  ContentRange range;
  const auto number = [&text](std::string_view before, std::uint64_t& value) {
    if (!text.starts_with(before)) return false;
    text.remove_prefix(before.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return error == std::errc();
  };
  const bool is_range = number("bytes ", range.first) && number("-", range.last) &&
                        number("/", range.size) && text.empty();
  return is_range ? std::optional(range) : std::nullopt;
}

// What distinguishes the versions of an object. Weak tags, of what may differ in bytes, do not.
struct Version {
  std::uint64_t size = 0;
  std::string tag;  // "ETag", or "Last-Modified" where there is none; or neither
  bool is_strong = false;
};

Version version_of(const HttpResponse& answer, std::uint64_t size) {
  const std::string_view tag = answer.header("etag");
  const bool is_strong = !tag.empty() && !tag.starts_with("W/");
  return {size, std::string(tag.empty() ? answer.header("last-modified") : tag), is_strong};
}

// 0 for no text.
std::int64_t hash(const std::string& text) {
  if (text.empty()) return 0;
  return static_cast<std::int64_t>(XXH3_64bits(text.data(), text.size()));
}

class RemoteHandle final : public Handle {
 public:
  RemoteHandle(HttpClient& client, const Store& store, std::string path)
      : client_(client), store_(store), path_(std::move(path)), beginning_(first_bytes) {
    const HttpResponse answer = ask(0, beginning_, false);
    version_ = opened_by(answer);
    identity_ = {version_.size, hash(version_.tag), 0};
  }

  const core::FileIdentity& identity() const noexcept override { return identity_; }

  std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset >= version_.size) return 0;
    to = to.first(std::min<std::uint64_t>(to.size(), version_.size - offset));
    if (offset < beginning_.size()) {
      to = to.first(std::min(to.size(), beginning_.size() - offset));
      std::copy_n(beginning_.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
      return to.size();
    }
    return read_some_of(offset, to);
  }

 private:
  // Answers may break off, but not again and again after a few bytes.
  std::size_t read_some_of(std::uint64_t offset, std::span<std::byte> to) const {
    constexpr std::size_t few = 4096;
    constexpr unsigned most_answers = 12;
    std::size_t done = 0;
    for (unsigned answers = 0; done < std::min(to.size(), few); ++answers) {
      if (answers == most_answers) refuse("the server's answers break off after a few bytes");
      const std::span<std::byte> rest = to.subspan(done);
      const HttpResponse answer = ask(offset + done, rest, true);
      check(answer, offset + done, rest.size());
      done += answer.bytes;
    }
    return done;
  }

  // The answer for a range, from where the object was found last.
  HttpResponse ask(std::uint64_t offset, std::span<std::byte> to, bool same_version) const {
    std::string place;  // that the last request was made to; empty: the store's own
    const auto make = [&] {
      place = current_place();
      HttpRequest request = place.empty() ? store_.request(path_) : HttpRequest{.url = place};
      request.headers.push_back("Range: bytes=" + std::to_string(offset) + "-" +
                                std::to_string(offset + to.size() - 1));
      // Some servers that check signatures change this header before.
      if (request.sign_as.empty()) request.headers.emplace_back("Accept-Encoding: identity");
      if (same_version && version_.is_strong) {
        request.headers.push_back("If-Match: " + version_.tag);
      }
      return request;
    };
    HttpResponse answer =
        client_.fetch(make, to, [&](const HttpRequest& made, const HttpResponse& response) {
          return place.empty() ? store_.renew(path_, made, response)
                               : forget_place(place, response);
        });
    const bool is_elsewhere =
        place.empty() && answer.status == 206 && !same_origin(answer.url, answer.first_url);
    const std::scoped_lock lock(mutex_);
    if (is_elsewhere) place_ = answer.url;
    return answer;
  }

  // Servers that redirect give the storage behind them a signature for some time.
  std::string current_place() const {
    const std::scoped_lock lock(mutex_);
    return place_;
  }

  // Whether the place may have been what failed; only the first who finds that forgets it.
  bool forget_place(const std::string& place, const HttpResponse& answer) const {
    if (answer.failure.empty() && (answer.status == 412 || answer.status == 416)) return false;
    const std::scoped_lock lock(mutex_);
    if (place_ == place) place_.clear();
    return true;
  }

  // Keeps the beginning.
  Version opened_by(const HttpResponse& answer) {
    if (!answer.failure.empty() && (answer.bytes == 0 || !answer.may_recover)) {
      raise_answer(store_, path_, answer);
    }
    refuse_encoded(answer);
    if (answer.status == 206) {
      const auto range = parse_range(answer.header("content-range"));
      if (!range || range->first != 0 || range->last >= first_bytes || range->last >= range->size) {
        refuse_range(answer);
      }
      beginning_.resize(answer.bytes);
      return version_of(answer, range->size);
    }
    if (answer.status == 416 && answer.header("content-range") == "bytes */0") {
      beginning_.clear();
      return version_of(answer, 0);
    }
    if (answer.status != 200) raise_answer(store_, path_, answer);
    // A server that sends short objects whole.
    beginning_.resize(answer.body.size());
    std::ranges::copy(std::as_bytes(std::span(answer.body)), beginning_.begin());
    return version_of(answer, answer.body.size());
  }

  void check(const HttpResponse& answer, std::uint64_t offset, std::uint64_t bytes) const {
    if (answer.failure.empty() && (answer.status == 412 || answer.status == 416)) refuse_changed();
    const bool is_refused = !answer.failure.empty() && !answer.may_recover;
    if (is_refused || (answer.status != 206 && answer.status != 200) ||
        (answer.status == 206 && answer.bytes == 0)) {
      raise_answer(store_, path_, answer, offset);
    }
    if (answer.status == 200) refuse("the server ignores the range that was asked for");
    refuse_encoded(answer);
    const auto range = parse_range(answer.header("content-range"));
    if (!range || range->first != offset || range->last != offset + bytes - 1) refuse_range(answer);
    const Version found = version_of(answer, range->size);
    if (found.size != version_.size || found.tag != version_.tag) refuse_changed();
  }

  [[noreturn]] void refuse(std::string cause, std::int32_t code = 0) const {
    throw IoError(ErrorRecord{.code = code, .file = path_, .cause = std::move(cause)});
  }

  [[noreturn]] void refuse_changed() const {
    refuse("the object changed while it was read", ESTALE);
  }

  [[noreturn]] void refuse_range(const HttpResponse& answer) const {
    refuse("the server sends another range than was asked for: '" +
           std::string(answer.header("content-range")) + "'");
  }

  void refuse_encoded(const HttpResponse& answer) const {
    const std::string_view encoding = answer.header("content-encoding");
    if (encoding.empty() || encoding == "identity") return;
    refuse("the server sends it encoded, as '" + std::string(encoding) +
           "', although that was not asked for");
  }

  HttpClient& client_;
  const Store& store_;
  const std::string path_;
  std::vector<std::byte> beginning_;
  Version version_;
  core::FileIdentity identity_;
  mutable std::mutex mutex_;   // guards the next member
  mutable std::string place_;  // where a redirect led to, if that is another server
};

// What looking up a path has brought, for the first who then asks for it. Thread-safe.
template <class Value>
class Found {
 public:
  void keep(const std::string& path, Value value) {
    const std::scoped_lock lock(mutex_);
    values_.insert_or_assign(path, std::move(value));
  }

  std::optional<Value> take(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    auto node = values_.extract(path);
    return node ? std::optional(std::move(node.mapped())) : std::nullopt;
  }

  void clear() {
    const std::scoped_lock lock(mutex_);
    values_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Value> values_;
};

class Remote final : public Source {
 public:
  Remote(const RemoteOptions& options, std::chrono::milliseconds patience)
      : headers_(options.headers),
        client_({.most_connections =
                     options.connections == 0 ? default_connections : options.connections,
                 .patience = patience}) {
    for (const std::string& header : headers_) {
      if (header.find_first_of("\r\n") == std::string::npos &&
          header.find(':') != std::string::npos) {
        continue;
      }
      throw ConfigError("a header must be one line, NAME: VALUE");
    }
  }

  Entry look_up(const std::string& path) const override {
    if (!path.ends_with(".safetensors") && !path.ends_with(".json")) {
      if (store_of(path).is_directory(path)) return Entry::directory;
      std::vector<std::string> names = names_in(path);
      if (names.empty()) return Entry::none;
      found_names_.keep(path, std::move(names));
      return Entry::directory;
    }
    try {
      found_handles_.keep(path, open(path, Access::cached));
      return Entry::other;
    } catch (const IoError& error) {
      const int code = error.record().code;
      const bool is_none =
          code == ENOENT || (code == EACCES && store_of(path).forbids_what_is_absent());
      if (!is_none) throw;
      return Entry::none;
    }
  }

  std::vector<std::string> names_in(const std::string& directory) const override {
    auto found = found_names_.take(directory);
    return found ? *std::move(found) : store_of(directory).names_in(directory);
  }

  // Checkpoints are looked for anew.
  std::string pinned(const std::string& path) const override {
    found_handles_.clear();
    found_names_.clear();
    Pinned pinned = store_of(path).pinned(path);
    if (pinned.names) found_names_.keep(pinned.path, *std::move(pinned.names));
    return std::move(pinned.path);
  }

  std::string canonical(const std::string& path) const override { return path; }

  core::FileIdentity identify(const std::string& path) const override {
    return open(path, Access::cached)->identity();
  }

  bool is_remote(const std::string&) const override { return true; }

  void interrupt(bool is_set) const noexcept override { client_.interrupt(is_set); }

  Requests requests() const override { return client_.requests(); }

  std::unique_ptr<Handle> open(const std::string& path, Access access) const override {
    if (access == Access::direct) {
      throw IoError(
          ErrorRecord{.code = EOPNOTSUPP, .file = path, .cause = "is not on this machine"});
    }
    if (auto found = found_handles_.take(path)) return *std::move(found);
    return std::make_unique<RemoteHandle>(client_, store_of(path), path);
  }

 private:
  const Store& store_of(const std::string& path) const {
    const std::scoped_lock lock(mutex_);
    const auto made = [&](std::unique_ptr<Store>& store, const auto& make) -> const Store& {
      if (!store) store = make(client_, headers_);
      return *store;
    };
    if (path.starts_with("s3://")) return made(s3_, make_s3_store);
    if (path.starts_with("hf://")) return made(hub_, make_hub_store);
    return made(web_, make_web_store);
  }

  const std::vector<std::string> headers_;
  mutable HttpClient client_;
  mutable Found<std::unique_ptr<Handle>> found_handles_;
  mutable Found<std::vector<std::string>> found_names_;
  mutable std::mutex mutex_;  // guards what follows; each is made when it is first needed
  mutable std::unique_ptr<Store> web_;
  mutable std::unique_ptr<Store> s3_;
  mutable std::unique_ptr<Store> hub_;
};

}  // namespace

std::unique_ptr<Source> make_remote(const RemoteOptions& options,
                                    std::chrono::milliseconds patience) {
  return std::make_unique<Remote>(options, patience);
}

}  // namespace safeshuffle::source
