#include "plan/proof_source.hpp"

#include <string>
#include <vector>

#include "core/arithmetic.hpp"
#include "plan/proof_support.hpp"

namespace safeshuffle::plan {
namespace {

class SourceProof {
 public:
  explicit SourceProof(const Schedule& schedule) : schedule_(schedule) {}

  void check() {
    require(schedule_.slabs.size() == std::size_t{schedule_.waves} * schedule_.world,
            "a slab is missing");
    file_ranges_.resize(schedule_.catalog.files().size());
    tensor_ranges_.resize(schedule_.catalog.tensors().size());
    for (std::size_t i = 0; i < schedule_.slabs.size(); ++i) {
      check_slab(schedule_.slabs[i], schedule_.ranks[i % schedule_.world].slab_bytes);
    }
    for (const auto& ranges : file_ranges_) require(disjoint(ranges), "a file range is read twice");
    for (std::size_t i = 0; i < tensor_ranges_.size(); ++i) check_tensor(i);
  }

 private:
  void check_slab(const Slab& slab, std::uint64_t capacity) {
    std::uint64_t free_from = 0;
    auto piece = slab.pieces.begin();
    for (const FileRange& range : slab.file_ranges) {
      check_range(range, free_from, capacity);
      free_from = range.slab_offset + range.bytes;
      std::uint64_t covered = 0;
      for (; piece != slab.pieces.end() && covered < range.bytes; ++piece) {
        check_piece(*piece, range, covered);
        covered += piece->end - piece->begin;
      }
      require(covered == range.bytes, "a file range does not hold the pieces read with it");
      file_ranges_[range.file].push_back({range.file_offset, range.file_offset + range.bytes});
    }
    require(piece == slab.pieces.end(), "a piece is not read");
  }

  void check_range(const FileRange& range, std::uint64_t free_from, std::uint64_t capacity) const {
    require(range.file < schedule_.catalog.files().size(), "a file range is of no file");
    const FileInfo& file = schedule_.catalog.files()[range.file];
    require(core::in_bounds(range.file_offset, range.bytes, file.size),
            "a file range ends after the file");
    require(range.slab_offset >= free_from, "two file ranges overlap in a slab");
    require(core::in_bounds(range.slab_offset, range.bytes, capacity),
            "a file range ends after the slab");
    require(range.slab_offset % page_bytes == range.file_offset % page_bytes,
            "a slab offset is not congruent to its file offset");
  }

  void check_piece(const Piece& piece, const FileRange& range, std::uint64_t offset_in_range) {
    require(piece.tensor < tensor_ranges_.size(), "a piece is of no tensor");
    const TensorInfo& tensor = schedule_.catalog.tensors()[piece.tensor];
    if (piece.begin >= piece.end || piece.end > tensor.bytes) {
      fail_proof(tensor.name, "a piece ends after the tensor");
    }
    if (tensor.file != range.file ||
        tensor.file_offset + piece.begin != range.file_offset + offset_in_range ||
        piece.slab_offset != range.slab_offset + offset_in_range) {
      fail_proof(tensor.name, "a piece does not lie where the file has it");
    }
    tensor_ranges_[piece.tensor].push_back({piece.begin, piece.end});
  }

  // Pieces lie in disjoint file ranges, so their sizes tell whether they are the whole tensor.
  void check_tensor(std::size_t index) const {
    const TensorInfo& tensor = schedule_.catalog.tensors()[index];
    const bool needed = schedule_.placements[index].kind != Placement::Kind::dropped;
    std::uint64_t read = 0;
    for (const Range& range : tensor_ranges_[index]) read += range.end - range.begin;
    if (read != (needed ? tensor.bytes : 0)) {
      fail_proof(tensor.name,
                 std::to_string(read) + " of " + std::to_string(tensor.bytes) + " bytes are read");
    }
  }

  const Schedule& schedule_;
  std::vector<std::vector<Range>> file_ranges_;
  std::vector<std::vector<Range>> tensor_ranges_;
};

}  // namespace

void prove_reading(const Schedule& schedule) {
  SourceProof(schedule).check();
}

}  // namespace safeshuffle::plan
