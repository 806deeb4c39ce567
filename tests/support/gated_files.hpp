// Files that are read only when a test lets them.
#pragma once

#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "support/wrapped_files.hpp"

namespace safeshuffle::testing {

/// Reads wait until `open_gate`. Thread-safe.
class GatedFiles final : public WrappedFiles {
 public:
  void open_gate() { gate_.set_value(); }

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

  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
};

}  // namespace safeshuffle::testing
