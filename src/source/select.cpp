#include "source/select.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "safeshuffle/error.hpp"

#include "source/files.hpp"
#include "source/local_cache.hpp"
#include "source/mirrored.hpp"

namespace safeshuffle::source {
namespace {

constexpr std::chrono::milliseconds longest_patience = std::chrono::minutes(1);
constexpr std::array<std::string_view, 4> schemes{"http://", "https://", "s3://", "hf://"};

// What may be secret must not be part of paths, which are printed.
void check_url(const std::string& url) {
  if (!url.starts_with("http://") && !url.starts_with("https://")) return;
  const std::size_t begin = url.find("//") + 2;
  const std::string_view host = std::string_view(url).substr(begin, url.find('/', begin) - begin);
  if (host.find('@') != std::string_view::npos) {
    throw ConfigError(
        "a URL has a name and a password: put them into ~/.netrc, or give a --header");
  }
  if (url.find_first_of("?#") != std::string::npos) {
    throw ConfigError("a URL has a query or a fragment, which is not supported: " +
                      url.substr(0, url.find_first_of("?#")));
  }
}

class Selected final : public Source {
 public:
  Selected(RemoteOptions options, std::chrono::milliseconds patience)
      : options_(std::move(options)), patience_(patience) {}

  Entry look_up(const std::string& path) const override { return of(path).look_up(path); }
  std::vector<std::string> names_in(const std::string& directory) const override {
    return of(directory).names_in(directory);
  }
  void interrupt(bool is_set) const noexcept override {
    const std::scoped_lock lock(mutex_);
    if (remote_) remote_->interrupt(is_set);
  }
  Requests requests() const override {
    const std::scoped_lock lock(mutex_);
    return remote_ ? remote_->requests() : Requests{};
  }
  bool is_remote(const std::string& path) const override { return is_url(path); }
  std::string pinned(const std::string& path) const override { return of(path).pinned(path); }
  std::string canonical(const std::string& path) const override { return of(path).canonical(path); }
  core::FileIdentity identify(const std::string& path) const override {
    return of(path).identify(path);
  }
  std::unique_ptr<Handle> open(const std::string& path, Access access) const override {
    return of(path).open(path, access);
  }

 private:
  const Source& of(const std::string& path) const {
    if (!is_url(path)) return files();
    check_url(path);
    const std::scoped_lock lock(mutex_);
    if (!remote_) remote_ = make_remote(options_, patience_);
    return *remote_;
  }

  const RemoteOptions options_;
  const std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<const Source> remote_;  // made when it is first needed
};

}  // namespace

bool is_url(std::string_view path) noexcept {
  return std::ranges::any_of(schemes, [&](auto scheme) { return path.starts_with(scheme); });
}

void refuse_to_write(const std::string& path) {
  if (is_url(path)) {
    throw ConfigError(ErrorRecord{.file = path, .cause = "nothing can be written to a URL"});
  }
}

std::shared_ptr<const Source> make_source(const RemoteOptions& options,
                                          std::chrono::milliseconds timeout) {
  const auto places = static_cast<int>(1 + options.sources.size());
  const auto patience = std::min(timeout / 2, longest_patience) / places;
  std::unique_ptr<const Source> source = std::make_unique<Selected>(options, patience);
  if (!options.cache.empty()) {
    refuse_to_write(options.cache);
    source = make_local_cache(std::move(source), options.cache, options.cache_bytes);
  }
  for (const std::string& place : options.sources) {
    if (place.find("://") != std::string::npos && !is_url(place)) {
      throw ConfigError("a source is no URL that is known: " + place.substr(0, place.find("://")));
    }
    check_url(place);
  }
  if (!options.sources.empty()) source = make_mirrored(std::move(source), options.sources);
  return source;
}

}  // namespace safeshuffle::source
