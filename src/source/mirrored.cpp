#include "source/mirrored.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <mutex>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "safeshuffle/error.hpp"

namespace safeshuffle::source {
namespace {

namespace fs = std::filesystem;

// Of the content, at the beginning, at the end, and between.
constexpr std::uint64_t compared_bytes = std::uint64_t{64} << 10;
constexpr std::uint64_t compared_parts = 5;

// Two models of one architecture have the same sizes and, with many tensors, the same beginnings.
core::FileIdentity identity_of(const Handle& handle, const std::string& path) {
  const std::uint64_t size = handle.identity().size;
  const std::uint64_t bytes = std::min(size, compared_bytes);
  std::vector<std::byte> parts(compared_parts * bytes);
  for (std::uint64_t i = 0; i < compared_parts; ++i) {
    const std::uint64_t offset = (size - bytes) / (compared_parts - 1) * i;
    read(handle, path, offset, std::span(parts).subspan(i * bytes, bytes));
  }
  return {size, static_cast<std::int64_t>(XXH3_64bits(parts.data(), parts.size())), 0};
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// Places by number: the one that is tried first, which is the one that worked last, and the only
// one in which objects are looked up and opened.
struct Order {
  static constexpr std::size_t any = std::numeric_limits<std::size_t>::max();

  std::atomic<std::size_t> first = 0;
  std::atomic<std::size_t> only = any;
};

// Where an object is, in each place.
struct Copies {
  std::vector<std::string> paths;
  Order& order;

  template <class Use>
  auto where_it_may_be(const Use& use) const {
    const std::size_t only = order.only;
    return only == Order::any ? until_one_works(use) : use(only);
  }

  // Calls `use` with one place after the other until it does not throw IoError.
  template <class Use>
  auto until_one_works(const Use& use) const {
    const std::size_t begin = order.first;
    std::optional<ErrorRecord> failure;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const std::size_t place = (begin + i) % paths.size();
      try {
        auto result = use(place);
        order.first = place;
        return result;
      } catch (const IoError& error) {
        if (error.record().code == ESTALE) throw;
        ErrorRecord record = error.record();
        if (failure) record.file = paths[place];
        add_failure(failure, record);
      }
    }
    throw IoError(std::move(*failure));
  }
};

class MirroredHandle final : public Handle {
 public:
  MirroredHandle(const Source& source, Copies copies)
      : source_(source), copies_(std::move(copies)), handles_(copies_.paths.size()) {
    copies_.where_it_may_be([&](std::size_t place) {
      auto handle = source_.open(copies_.paths[place], Access::cached);
      identity_ = identity_of(*handle, copies_.paths[place]);
      handles_[place] = std::move(handle);
      return true;
    });
  }

  const core::FileIdentity& identity() const noexcept override { return identity_; }

  std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
    return copies_.until_one_works(
        [&](std::size_t place) { return handle_at(place)->read_some(offset, to); });
  }

 private:
  std::shared_ptr<const Handle> handle_at(std::size_t place) const {
    {
      const std::scoped_lock lock(mutex_);
      if (handles_[place]) return handles_[place];
    }
    const std::string& path = copies_.paths[place];
    std::shared_ptr<const Handle> handle = source_.open(path, Access::cached);
    if (identity_of(*handle, path) != identity_) {
      throw IoError(
          ErrorRecord{.file = path, .cause = "is another object: size or content differ"});
    }
    const std::scoped_lock lock(mutex_);
    return handles_[place] = std::move(handle);
  }

  const Source& source_;
  const Copies copies_;
  core::FileIdentity identity_;
  mutable std::mutex mutex_;  // guards the next member
  mutable std::vector<std::shared_ptr<const Handle>> handles_;
};

class Mirrored final : public Source {
 public:
  Mirrored(std::unique_ptr<const Source> source, std::vector<std::string> places)
      : source_(std::move(source)), places_(std::move(places)) {
    for (std::string& place : places_) place = without_slash(std::move(place));
  }

  Entry look_up(const std::string& path) const override {
    const bool is_object = path.ends_with(".safetensors") || path.ends_with(".json");
    const Copies copies = is_object ? copies_of(path) : directories(path);
    return copies.where_it_may_be(
        [&](std::size_t place) { return source_->look_up(copies.paths[place]); });
  }

  std::vector<std::string> names_in(const std::string& directory) const override {
    const Copies copies = directories(directory);
    return copies.where_it_may_be(
        [&](std::size_t place) { return source_->names_in(copies.paths[place]); });
  }

  bool is_remote(const std::string&) const override { return true; }

  // If it cannot be had, that it may change matters less.
  std::string pinned(const std::string& path) const override try {
    const bool is_elsewhere = order_.only != Order::any && order_.only != 0;
    return is_elsewhere ? path : source_->pinned(path);
  } catch (const IoError&) {
    return path;
  }

  std::vector<std::string> local(const std::vector<std::string>& paths) const override {
    return source_->local(paths);
  }

  std::string canonical(const std::string& path) const override { return path; }

  std::size_t places() const override { return 1 + places_.size(); }

  void keep_to(std::optional<std::size_t> place) const noexcept override {
    order_.only = place.value_or(Order::any);
    if (place) order_.first = *place;
  }

  void interrupt(bool is_set) const noexcept override { source_->interrupt(is_set); }

  Requests requests() const override { return source_->requests(); }

  core::FileIdentity identify(const std::string& path) const override {
    return open(path, Access::cached)->identity();
  }

  std::unique_ptr<Handle> open(const std::string& path, Access access) const override {
    if (access == Access::direct) {
      throw IoError(ErrorRecord{
          .code = EOPNOTSUPP, .file = path, .cause = "files in several places are read by offset"});
    }
    return std::make_unique<MirroredHandle>(*source_, copies_of(path));
  }

 private:
  Copies copies_of(const std::string& path) const {
    Copies copies{{path}, order_};
    const std::string name = fs::path(path).filename().string();
    for (const std::string& place : places_) copies.paths.push_back(place + "/" + name);
    return copies;
  }

  Copies directories(const std::string& path) const {
    Copies copies{{path}, order_};
    copies.paths.insert(copies.paths.end(), places_.begin(), places_.end());
    return copies;
  }

  const std::unique_ptr<const Source> source_;
  std::vector<std::string> places_;
  mutable Order order_;
};

}  // namespace

void add_failure(std::optional<ErrorRecord>& first, const ErrorRecord& another) {
  if (!first) {
    first = another;
  } else {
    first->cause += "; and " + another.file + ": " + another.cause;
  }
}

std::unique_ptr<Source> make_mirrored(std::unique_ptr<const Source> source,
                                      std::vector<std::string> places) {
  return std::make_unique<Mirrored>(std::move(source), std::move(places));
}

}  // namespace safeshuffle::source
