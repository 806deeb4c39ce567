// Reading headers ahead: all of them, in order, errors where they belong, several at the same time.
#include "source/header_reader.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/safetensors_file.hpp"
#include "support/temporary_directory.hpp"
#include "support/wrapped_files.hpp"

using namespace safeshuffle;
using testing::failure;
using testing::TemporaryDirectory;

namespace {

std::string header_of(std::size_t file) {
  return R"({"__metadata__":{"file":")" + std::to_string(file) + R"("}})";
}

std::vector<std::string> write_files(const TemporaryDirectory& directory, std::size_t count) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < count; ++i) {
    paths.push_back(directory.write(std::to_string(i), testing::raw_file(header_of(i), 0)));
  }
  return paths;
}

/// Of which no file is opened before another one is.
class OpenedInPairs final : public testing::WrappedFiles {
 public:
  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    std::unique_lock lock(mutex_);
    ++opened_;
    changed_.notify_all();
    paired_ = changed_.wait_for(lock, std::chrono::seconds(10), [this] { return opened_ > 1; });
    return files_.open(path, access);
  }

  bool paired() const { return paired_; }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int opened_ = 0;
  mutable bool paired_ = false;
};

/// Of which one is not opened before it is released.
class HeldUp final : public testing::WrappedFiles {
 public:
  explicit HeldUp(std::string path) : path_(std::move(path)) {}

  std::unique_ptr<source::Handle> open(const std::string& path,
                                       source::Access access) const override {
    if (path == path_)
      in_time_ = released_.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    return files_.open(path, access);
  }

  void release() { release_.set_value(); }
  bool in_time() const { return in_time_; }

 private:
  const std::string path_;
  std::promise<void> release_;
  std::shared_future<void> released_ = release_.get_future();
  mutable std::atomic<bool> in_time_ = false;
};

}  // namespace

TEST_CASE("headers read ahead come in the order of their paths", "[format][header_reader]") {
  const TemporaryDirectory directory;
  const std::size_t count = GENERATE(0U, 1U, 2U, 63U, 64U, 65U, 200U, 1025U);
  source::HeaderReader reader(source::files(), write_files(directory, count));
  for (std::size_t i = 0; i < count; ++i) CHECK(reader.next().json == header_of(i));
}

TEST_CASE("a header that cannot be read is an error in its turn", "[format][header_reader]") {
  const TemporaryDirectory directory;
  std::vector<std::string> paths = write_files(directory, GENERATE(10U, 300U));
  paths[3] = directory / "missing";
  paths[5] = directory.write("short", "1234");
  source::HeaderReader reader(source::files(), paths);
  for (std::size_t i = 0; i < 3; ++i) CHECK(reader.next().json == header_of(i));
  const ErrorRecord missing = failure<IoError>([&] { reader.next(); });
  CHECK(missing.code == ENOENT);
  CHECK(missing.file == paths[3]);
  CHECK(reader.next().json == header_of(4));
  CHECK(failure<FormatError>([&] { reader.next(); }).file == paths[5]);
  CHECK(reader.next().json == header_of(6));
}

TEST_CASE("a slow answer of storage does not hold the other headers up",
          "[format][header_reader]") {
  const TemporaryDirectory directory;
  const OpenedInPairs files;
  source::HeaderReader reader(files, write_files(directory, 2));
  CHECK(reader.next().json == header_of(0));
  CHECK(reader.next().json == header_of(1));
  CHECK(files.paired());
}

TEST_CASE("a header is not held up by those read ahead", "[format][header_reader]") {
  const TemporaryDirectory directory;
  const std::vector<std::string> paths = write_files(directory, 3);
  HeldUp files(paths[1]);
  source::HeaderReader reader(files, paths);
  CHECK(reader.next().json == header_of(0));
  files.release();
  CHECK(reader.next().json == header_of(1));
  CHECK(files.in_time());
}
