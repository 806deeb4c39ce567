// Opening a checkpoint: what it finds out about where its files are.
#include "pipeline/open.hpp"

#include <cerrno>
#include <memory>
#include <span>
#include <string>

#include "comm/control/control.hpp"
#include "core/system_call.hpp"
#include "support/catch.hpp"
#include "support/safetensors_file.hpp"
#include "support/temporary_directory.hpp"
#include "support/wrapped_files.hpp"

using namespace safeshuffle;

namespace {

/// As on a network filesystem; or on a local one, but the system does not tell what is cached.
class OtherFiles final : public testing::WrappedFiles {
 public:
  explicit OtherFiles(bool local) : local_(local) {}

  std::unique_ptr<source::Handle> open(const std::string& path, source::Access) const override {
    return std::make_unique<Other>(files_.open(path, source::Access::cached), local_);
  }

 private:
  class Other final : public source::Handle {
   public:
    Other(std::unique_ptr<source::Handle> file, bool local)
        : file_(std::move(file)), local_(local) {}
    bool is_local() const noexcept override { return local_; }
    const core::FileIdentity& identity() const noexcept override { return file_->identity(); }
    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const override {
      return file_->read_some(offset, to);
    }

   private:
    std::unique_ptr<source::Handle> file_;
    bool local_;
  };

  bool local_;
};

/// As on a local filesystem that has direct reads, or refuses them with this errno.
class LocalFiles final : public testing::WrappedFiles {
 public:
  explicit LocalFiles(int refusal = 0) : refusal_(refusal) {}

  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    if (access == source::Access::direct && refusal_ != 0) {
      core::raise_errno(refusal_, path, "cannot open");
    }
    return files_.open(path, source::Access::cached);
  }

 private:
  int refusal_;
};

bool reads_directly(const source::Source& source, const Options& options) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory.write("a.safetensors", testing::raw_file("{}", 0));
  const auto control = comm::make_self_control();
  return pipeline::open_together(source, {file}, options, DeviceKind::host, *control)
      .site.reads_directly;
}

}  // namespace

TEST_CASE("costs of cold files are those of how they will be read", "[open]") {
  const LocalFiles local;
  const OtherFiles remote(false);
  const OtherFiles untold(true);
  Options options;
  options.tp_plan = "replicate";
  CHECK(reads_directly(local, options));
  CHECK_FALSE(reads_directly(remote, options));
  CHECK_FALSE(reads_directly(untold, options));
  options.direct = DirectIo::on;
  CHECK(reads_directly(remote, options));
  options.direct = DirectIo::off;
  CHECK_FALSE(reads_directly(local, options));
}

TEST_CASE("where direct reads are refused, costs of cold files are those of buffered ones",
          "[open]") {
  Options options;
  options.tp_plan = "replicate";
  options.direct = GENERATE(DirectIo::automatic, DirectIo::on);
  CHECK_FALSE(reads_directly(LocalFiles(EINVAL), options));
  CHECK_FALSE(reads_directly(LocalFiles(EOPNOTSUPP), options));
  CHECK_FALSE(reads_directly(LocalFiles(EACCES), options));
}
