// A source without files.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/system_call.hpp"
#include "source/source.hpp"

namespace safeshuffle::testing {

/// Objects by absolute path. Must not be changed while it is read.
class MemorySource final : public source::Source {
 public:
  /// Replaces an earlier object of that name, which open handles still refer to.
  void put(const std::string& path, std::string bytes) {
    const core::FileIdentity identity{bytes.size(), 0, ++puts_};
    objects_[path] = {std::make_shared<const std::string>(std::move(bytes)), identity};
  }

  source::Entry look_up(const std::string& path) const override {
    if (objects_.contains(path)) return source::Entry::other;
    return names_below(path).empty() ? source::Entry::none : source::Entry::directory;
  }

  std::vector<std::string> names_in(const std::string& directory) const override {
    return names_below(directory);
  }

  std::string canonical(const std::string& path) const override { return path; }

  core::FileIdentity identify(const std::string& path) const override {
    return find(path, "cannot stat").identity;
  }

  std::unique_ptr<source::Handle> open(const std::string& path, source::Access) const override {
    return std::make_unique<Opened>(find(path, "cannot open"));
  }

 private:
  struct Object {
    std::shared_ptr<const std::string> bytes;
    core::FileIdentity identity;
  };

  class Opened final : public source::Handle {
   public:
    explicit Opened(Object object) : object_(std::move(object)) {}

    const core::FileIdentity& identity() const noexcept override { return object_.identity; }

    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      const auto bytes = std::as_bytes(std::span(*object_.bytes));
      const auto rest = bytes.subspan(std::min<std::size_t>(offset, bytes.size()));
      const std::size_t count = std::min(rest.size(), to.size());
      std::copy_n(rest.begin(), count, to.begin());
      return count;
    }

   private:
    Object object_;
  };

  const Object& find(const std::string& path, const char* action) const {
    const auto found = objects_.find(path);
    if (found == objects_.end()) core::raise_errno(ENOENT, path, action);
    return found->second;
  }

  std::vector<std::string> names_below(const std::string& directory) const {
    const std::string prefix = directory + "/";
    std::vector<std::string> names;
    for (const auto& [path, object] : objects_) {
      if (!path.starts_with(prefix)) continue;
      const std::string name =
          path.substr(prefix.size(), path.find('/', prefix.size()) - prefix.size());
      if (names.empty() || names.back() != name) names.push_back(name);
    }
    return names;
  }

  std::map<std::string, Object> objects_;
  std::uint64_t puts_ = 0;
};

}  // namespace safeshuffle::testing
