// format: writing files, and reading them back.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "safeshuffle/error.hpp"

#include "format/header.hpp"
#include "output/file_writer.hpp"
#include "support/catch.hpp"
#include "support/failure.hpp"
#include "support/temporary_directory.hpp"

using namespace safeshuffle;
using format::HeaderLayout;
using format::layout_header;
using format::TensorSpec;
using output::FileWriter;
using testing::failure;
using testing::TemporaryDirectory;

namespace {

format::Header parse(const HeaderLayout& layout) {
  return format::parse_header(std::string_view(layout.bytes).substr(8), layout.file_size, "f");
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// While it lives, no file of this process may grow beyond `bytes`: a full disk on demand.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

const std::vector<TensorSpec> two{{"a", DType::U8, {4}}, {"b", DType::U8, {2}}};

}  // namespace

TEST_CASE("a laid out header reads back as what was asked for", "[format][writer]") {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i <= static_cast<int>(DType::U64); ++i) {
    tensors.push_back({std::to_string(i), static_cast<DType>(i), {4, 3}});
  }
  tensors.push_back({"", DType::F32, {}});
  tensors.push_back({"empty \"\\\n\xc3\xa9", DType::F64, {0, 7}});
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"\"", "\\"}};

  const HeaderLayout layout = layout_header(tensors, metadata);
  const format::Header header = parse(layout);
  CHECK(header.metadata == metadata);
  REQUIRE(header.tensors.size() == tensors.size());
  std::uint64_t end = header.data_start;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CAPTURE(i);
    CHECK(layout.file_offset[i] == end);
    const auto found = std::find_if(header.tensors.begin(), header.tensors.end(),
                                    [&](const auto& each) { return each.name == tensors[i].name; });
    REQUIRE(found != header.tensors.end());
    CHECK(found->dtype == tensors[i].dtype);
    CHECK(found->shape == tensors[i].shape);
    CHECK(found->file_offset == end);
    end += found->bytes;
  }
  CHECK(layout.file_size == end);
}

TEST_CASE("data starts at the alignment asked for", "[format][writer]") {
  const std::uint64_t alignment = GENERATE(1U, 2U, 8U, 24U, 256U, 4096U);
  const HeaderLayout layout = layout_header(two, {}, alignment);
  CHECK(layout.file_offset[0] % alignment == 0);
  CHECK(layout.file_offset[0] == layout.bytes.size());
  CHECK(parse(layout).tensors.size() == 2);
  CHECK(layout_header({}, {}, 1).bytes.size() == 10);
}

TEST_CASE("what the format cannot hold is not laid out", "[format][writer]") {
  const auto refused = [](std::vector<TensorSpec> tensors, std::uint64_t alignment = 8) {
    return failure<ConfigError>([&] { layout_header(tensors, {}, alignment); }).tensor;
  };
  const std::uint64_t half = std::uint64_t{1} << 63;
  CHECK(refused({{"a", DType::U8, {1}}, {"a", DType::U8, {1}}}) == "a");
  CHECK(refused({{"__metadata__", DType::U8, {1}}}) == "__metadata__");
  CHECK(refused({{"a", DType::U8, {half, 2}}}) == "a");
  CHECK(refused({{"a", DType::F4, {3}}}) == "a");
  CHECK(refused({{"\xff", DType::U8, {1}}}) == "\xff");
  const std::vector<TensorSpec> huge(9, {"", DType::U8, {(half >> 2) - 1}});
  std::vector<TensorSpec> named = huge;
  for (std::size_t i = 0; i < named.size(); ++i) named[i].name = std::to_string(i);
  CHECK(refused(named) == "8");
  CHECK(refused(two, 0).empty());
  CHECK(refused(two, half).empty());
  CHECK(refused({{std::string(100'000'001, 'a'), DType::U8, {1}}}).empty());
}

TEST_CASE("a committed file is complete, in any order of writes", "[format][writer]") {
  const TemporaryDirectory directory;
  const std::string path = directory / "x y.safetensors";
  FileWriter writer(path, layout_header(two));
  writer.write(1, 0, bytes_of("56"));
  writer.write(0, 2, bytes_of("34"));
  writer.write(0, 0, bytes_of("12"));
  writer.flush();
  CHECK_FALSE(std::filesystem::exists(path));
  writer.commit();
  CHECK(testing::read_file(path) == writer.layout().bytes + "123456");
  CHECK(directory.names() == std::vector<std::string>{"x y.safetensors"});
}

TEST_CASE("a committed file takes the place of an older one", "[format][writer]") {
  const TemporaryDirectory directory;
  const std::string path =
      directory.write("x", "older and longer than the file to be written .....");
  FileWriter writer(path, layout_header({}));
  writer.commit();
  CHECK(testing::read_file(path) == writer.layout().bytes);
}

TEST_CASE("without a commit nothing remains and nothing changes", "[format][writer]") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("x", "older");
  {
    FileWriter writer(path, layout_header(two));
    writer.write(0, 0, bytes_of("1234"));
  }
  CHECK(directory.names() == std::vector<std::string>{"x"});
  CHECK(testing::read_file(path) == "older");
}

TEST_CASE("an unfinished file is not flushed", "[format][writer]") {
  const TemporaryDirectory directory;
  const std::string path = directory / "x";
  FileWriter writer(path, layout_header(two));
  writer.write(0, 0, bytes_of("1234"));
  const ErrorRecord record = failure<IoError>([&] { writer.flush(); });
  CHECK(record.file == path);
  CHECK_FALSE(std::filesystem::exists(path));
  writer.extend();
  writer.flush();
  writer.commit();
  CHECK(testing::read_file(path) == writer.layout().bytes + "1234" + std::string(2, '\0'));
}

TEST_CASE("a write stays inside its tensor", "[format][writer]") {
  const TemporaryDirectory directory;
  FileWriter writer(directory / "x", layout_header(two));
  CHECK_THROWS_AS(writer.write(0, 0, bytes_of("12345")), IoError);
  CHECK_THROWS_AS(writer.write(1, 1, bytes_of("12")), IoError);
  CHECK_THROWS_AS(writer.write(1, ~std::uint64_t{0}, bytes_of("12")), IoError);
}

TEST_CASE("a file that cannot be written is an error with its name and errno", "[format][writer]") {
  const TemporaryDirectory directory;
  const std::string path = directory / "absent/x";
  const ErrorRecord record = failure<IoError>([&] { FileWriter(path, layout_header(two)); });
  CHECK(record.file == path);
  CHECK(record.code == ENOENT);
  std::filesystem::create_directory(directory / "x");
  const auto replace = [&] { FileWriter(directory / "x", layout_header({})); };
  CHECK(failure<IoError>(replace).code == EISDIR);
  FileWriter beyond(directory / "y", layout_header({{"a", DType::U8, {std::uint64_t{1} << 60}},
                                                    {"b", DType::U8, {1}}}));
  const ErrorRecord too_far = failure<IoError>([&] { beyond.write(1, 0, bytes_of("1")); });
  CHECK(too_far.code == EFBIG);
  CHECK(too_far.file == directory / "y");
  CHECK(too_far.offset == beyond.layout().file_offset[1]);
}

TEST_CASE("running out of space is an error at its offset and leaves nothing", "[format][writer]") {
  const TemporaryDirectory directory;
  const HeaderLayout layout = layout_header(two);
  {
    FileWriter writer(directory / "x", layout);
    const FileSizeLimit limit(layout.file_size - 1);
    const ErrorRecord record = failure<IoError>([&] { writer.write(1, 0, bytes_of("56")); });
    CHECK(record.code == EFBIG);
    CHECK(record.file == directory / "x");
    CHECK(record.offset == layout.file_size - 1);
    CHECK_THROWS_AS(writer.extend(), IoError);
  }
  {
    const FileSizeLimit limit(9);
    CHECK_THROWS_AS(FileWriter(directory / "y", layout), IoError);
  }
  CHECK(directory.names().empty());
}
