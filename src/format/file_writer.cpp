#include <array>
#include <charconv>
#include <random>
#include <utility>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "format/writer.hpp"

namespace safeshuffle::format {
namespace {

/// Data that may wait to be written to storage, in bytes: a flush then takes seconds, not minutes.
constexpr std::uint64_t unflushed_limit = std::uint64_t{32} << 20;

std::string random_digits() {
  std::random_device device;
  const std::uint64_t number = std::uint64_t{device()} << 32 | device();
  std::array<char, 16> digits{};
  const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return {digits.data(), result.ptr};
}

/// A name beside `path`, hidden so that it is never taken for part of a checkpoint.
std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  std::string name = path.filename().string();
  name.insert(name.begin(), '.');
  return path.parent_path() / name.append(".tmp-").append(random_digits());
}

}  // namespace

FileWriter::FileWriter(std::filesystem::path path, HeaderLayout layout)
    : path_(std::move(path)),
      temporary_(temporary_beside(path_)),
      layout_(std::move(layout)),
      file_(core::PosixFile::create(temporary_.string(), path_.string())) {
  try {
    file_.write(0, std::as_bytes(std::span(layout_.bytes)));
  } catch (...) {
    discard();
    throw;
  }
}

FileWriter::~FileWriter() {
  if (!committed_) discard();
}

void FileWriter::write(std::size_t index, std::uint64_t offset_in_tensor,
                       std::span<const std::byte> data) {
  const std::vector<std::uint64_t>& begins = layout_.file_offset;
  const std::uint64_t begin = begins.at(index);
  const std::uint64_t end = index + 1 < begins.size() ? begins[index + 1] : layout_.file_size;
  if (!core::in_bounds(offset_in_tensor, data.size(), end - begin)) {
    throw IoError(ErrorRecord{.file = path_.string(),
                              .tensor = {},
                              .offset = begin,
                              .cause = "write past the end of the tensor that begins here"});
  }
  flushed_ = false;
  file_.write(begin + offset_in_tensor, data);
  unflushed_ += data.size();
  if (unflushed_ < unflushed_limit) return;
  file_.sync();
  unflushed_ = 0;
}

void FileWriter::extend() {
  file_.resize(layout_.file_size);
}

void FileWriter::flush() {
  const std::uint64_t size = file_.identity().size;
  if (size != layout_.file_size) {
    throw IoError(ErrorRecord{.file = path_.string(),
                              .tensor = {},
                              .offset = size,
                              .cause = "the data of the last tensors was not written"});
  }
  file_.sync();
  flushed_ = true;
}

void FileWriter::commit() {
  if (!flushed_) flush();
  core::rename_file(temporary_.string(), path_.string());
  committed_ = true;
  const std::filesystem::path directory = path_.parent_path();
  core::sync_directory(directory.empty() ? "." : directory.string());
}

void FileWriter::discard() noexcept {
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

}  // namespace safeshuffle::format
