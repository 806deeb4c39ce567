#include "source/files.hpp"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/page_cache.hpp"
#include "core/posix_file.hpp"
#include "core/system_call.hpp"

namespace safeshuffle::source {
namespace {

namespace fs = std::filesystem;

class FileHandle final : public Handle {
 public:
  explicit FileHandle(core::PosixFile file) : file_(std::move(file)) {}

  const core::FileIdentity& identity() const noexcept override { return file_.identity_at_first(); }

  std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
    return file_.read_some(offset, to);
  }

  int descriptor() const noexcept override { return file_.descriptor(); }

  bool is_local() const noexcept override { return core::is_local(descriptor()); }

  std::optional<std::uint64_t> cached_bytes(std::uint64_t offset,
                                            std::uint64_t bytes) const override {
    return core::cached_bytes(descriptor(), offset, bytes);
  }

  std::optional<std::uint64_t> sampled_cached_bytes(std::uint64_t offset,
                                                    std::uint64_t bytes) const override {
    return core::sampled_cached_bytes(descriptor(), offset, bytes);
  }

  bool has_hole(std::uint64_t offset, std::uint64_t bytes) const noexcept override {
    return core::has_hole(descriptor(), offset, bytes);
  }

  void drop_cached(std::uint64_t offset, std::uint64_t bytes) const noexcept override {
    core::drop_cached(descriptor(), offset, bytes);
  }

  void stop_readahead() const noexcept override { core::stop_readahead(descriptor()); }

 private:
  const core::PosixFile file_;
};

class Files final : public Source {
 public:
  Entry look_up(const std::string& path) const override {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) return Entry::directory;
    const fs::file_type type = fs::symlink_status(path, ignored).type();
    return type == fs::file_type::not_found ? Entry::none : Entry::other;
  }

  std::vector<std::string> names_in(const std::string& directory) const override try {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      std::string name = entry.path().filename().string();
      if (!name.starts_with('.')) names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    return names;
  } catch (const fs::filesystem_error& error) {
    core::raise_errno(error.code().value(), directory, "cannot list the directory");
  }

  std::string canonical(const std::string& path) const override {
    std::error_code error;
    const fs::path target = fs::canonical(path, error);
    if (error) core::raise_errno(error.value(), path, "cannot resolve the path");
    return target.string();
  }

  core::FileIdentity identify(const std::string& path) const override {
    return core::identify(path);
  }

  std::unique_ptr<Handle> open(const std::string& path, Access access) const override {
    const int flags = access == Access::direct ? O_DIRECT : 0;
    return std::make_unique<FileHandle>(core::PosixFile::open(path, flags));
  }
};

}  // namespace

const Source& files() {
  static const Files source;
  return source;
}

}  // namespace safeshuffle::source
