// Contents of a checkpoint: files and tensors, validated once, then immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "safeshuffle/dtype.hpp"

namespace safeshuffle {

/// Extents in elements, outermost first; empty for a scalar.
using Shape = std::vector<std::uint64_t>;

/// Consecutive indices [begin, begin + length) along one axis of a tensor.
struct Interval {
  std::uint64_t begin = 0;
  std::uint64_t length = 0;
  bool operator==(const Interval&) const = default;
};

/// One tensor as stored.
struct TensorInfo {
  std::string name;
  DType dtype = DType::U8;
  Shape shape;
  std::uint32_t file = 0;         ///< index into Catalog::files()
  std::uint64_t file_offset = 0;  ///< first byte, counted from the start of the file
  std::uint64_t bytes = 0;        ///< product of shape × bits(dtype) / 8
};

/// A second name of a stored tensor, under which it was not stored again because both were one when
/// the file was written.
struct Alias {
  std::string name;    ///< that no stored tensor has
  std::string tensor;  ///< name of the stored tensor
  bool operator==(const Alias&) const = default;
};

/// One file of a checkpoint.
struct FileInfo {
  std::string path;
  std::uint64_t size = 0;          ///< bytes
  std::uint64_t data_start = 0;    ///< 8 + header length: where tensor data begins
  std::int64_t modified_ns = 0;    ///< modification time, to detect a file replaced while loading
  std::uint64_t inode = 0;         ///< likewise, if this process has read the header; else 0
  std::uint32_t first_tensor = 0;  ///< index into Catalog::tensors()
  std::uint32_t tensor_count = 0;

  /// `__metadata__` of its header, by key, but for a record of shards (sharded_state.hpp).
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

/// Every tensor of every file, ordered by (file, file_offset). Immutable, so safe to share between
/// threads; copies share one memory. Identical on all ranks of a load, but for `inode`.
class Catalog {
 public:
  Catalog();

  /// Whether the files of a checkpoint may have tensors of the same name: those of a sharded state
  /// do (see sharded_state.hpp), and those of which an index selects one have not been left out
  /// yet.
  enum class Names : std::uint8_t { unique, by_file };

  /// `tensors` must be ordered by (file, file_offset), with valid `file` indices. Fills in
  /// `first_tensor` and `tensor_count`. Throws FormatError if a name that must be unique is in two
  /// files.
  Catalog(std::vector<FileInfo> files, std::vector<TensorInfo> tensors,
          Names names = Names::unique);

  std::span<const FileInfo> files() const noexcept { return contents_->files; }
  std::span<const TensorInfo> tensors() const noexcept { return contents_->tensors; }
  std::span<const TensorInfo> tensors_of(const FileInfo& file) const noexcept;

  /// The first one of this name; null if no file has it. The pointer is valid as long as the
  /// catalog.
  const TensorInfo* find(std::string_view name) const noexcept;

  /// Sum of all tensors' bytes, without headers.
  std::uint64_t tensor_bytes() const noexcept { return contents_->tensor_bytes; }

 private:
  struct Contents {
    std::vector<FileInfo> files;
    std::vector<TensorInfo> tensors;
    std::vector<std::uint32_t> by_name;  // tensor indices sorted by name
    std::uint64_t tensor_bytes = 0;
  };

  void require_unique_names() const;

  std::shared_ptr<const Contents> contents_;
};

}  // namespace safeshuffle
