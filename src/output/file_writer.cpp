#include "output/file_writer.hpp"

#include <utility>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"

namespace safeshuffle::output {
namespace {

/// Maximum data not yet written to storage, in bytes, so that a flush takes seconds, not minutes.
constexpr std::uint64_t unflushed_limit = std::uint64_t{32} << 20;

[[noreturn]] void refuse(const core::NewFile& file, std::uint64_t offset, const char* cause) {
  throw IoError(ErrorRecord{.file = file.path().string(), .offset = offset, .cause = cause});
}

}  // namespace

FileWriter::FileWriter(std::filesystem::path path, format::HeaderLayout layout)
    : layout_(std::move(layout)), file_(std::move(path)) {
  file_.content().write(0, std::as_bytes(std::span(layout_.bytes)));
}

void FileWriter::write(std::size_t index, std::uint64_t offset_in_tensor,
                       std::span<const std::byte> data) {
  const std::vector<std::uint64_t>& begins = layout_.file_offset;
  const std::uint64_t begin = begins.at(index);
  const std::uint64_t end = index + 1 < begins.size() ? begins[index + 1] : layout_.file_size;
  if (!core::in_bounds(offset_in_tensor, data.size(), end - begin)) {
    refuse(file_, begin, "write past the end of the tensor that begins here");
  }
  file_.content().write(begin + offset_in_tensor, data);
  unflushed_ += data.size();
  if (unflushed_ < unflushed_limit) return;
  file_.content().sync();
  unflushed_ = 0;
}

void FileWriter::extend() {
  file_.content().resize(layout_.file_size);
}

void FileWriter::flush() {
  const std::uint64_t size = file_.content().identity().size;
  if (size != layout_.file_size) {
    refuse(file_, size, "the data of the last tensors was not written");
  }
  file_.content().sync();
}

}  // namespace safeshuffle::output
