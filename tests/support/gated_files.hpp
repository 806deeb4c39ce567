// Files that are read only when a test lets them.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "source/files.hpp"

namespace safeshuffle::testing {

/// Reads wait until `open_gate`. Thread-safe.
class GatedFiles final : public source::Source {
 public:
  void open_gate() { gate_.set_value(); }

  source::Entry look_up(const std::string& path) const override { return files_.look_up(path); }
  std::vector<std::string> names_in(const std::string& directory) const override {
    return files_.names_in(directory);
  }
  std::string canonical(const std::string& path) const override { return files_.canonical(path); }
  core::FileIdentity identify(const std::string& path) const override {
    return files_.identify(path);
  }
  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    return std::make_unique<Gated>(opened_, files_.open(path, access));
  }

 private:
  class Gated final : public source::Handle {
   public:
    Gated(std::shared_future<void> opened, std::unique_ptr<source::Handle> file)
        : opened_(std::move(opened)), file_(std::move(file)) {}

    const core::FileIdentity& identity() const noexcept override { return file_->identity(); }
    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      opened_.wait();
      return file_->read_some(offset, to);
    }

   private:
    const std::shared_future<void> opened_;
    const std::unique_ptr<source::Handle> file_;
  };

  const source::Source& files_ = source::files();
  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
};

}  // namespace safeshuffle::testing
