#include <algorithm>
#include <utility>

#include "safeshuffle/metadata.hpp"

#include "core/name_order.hpp"
#include "format/format_error.hpp"

namespace safeshuffle {
namespace {

void count_tensors(std::vector<FileInfo>& files, const std::vector<TensorInfo>& tensors) {
  for (FileInfo& file : files) file.tensor_count = 0;
  for (const TensorInfo& tensor : tensors) ++files[tensor.file].tensor_count;
  std::uint32_t first = 0;
  for (FileInfo& file : files) file.first_tensor = std::exchange(first, first + file.tensor_count);
}

std::vector<std::uint32_t> order_by_name(const std::vector<TensorInfo>& tensors) {
  const auto name_of = [&](std::uint32_t i) { return std::string_view(tensors[i].name); };
  return core::NameSort(name_of).order(tensors.size());
}

}  // namespace

Catalog::Catalog(std::vector<FileInfo> files, std::vector<TensorInfo> tensors, Names names)
    : files_(std::move(files)), tensors_(std::move(tensors)), by_name_(order_by_name(tensors_)) {
  count_tensors(files_, tensors_);
  for (const TensorInfo& tensor : tensors_) tensor_bytes_ += tensor.bytes;
  if (names == Names::by_file) return;
  const auto twin = std::adjacent_find(by_name_.begin(), by_name_.end(), [&](auto a, auto b) {
    return tensors_[a].name == tensors_[b].name;
  });
  if (twin == by_name_.end()) return;
  const TensorInfo& second = tensors_[*std::next(twin)];
  format::raise_format(FormatErrc::duplicate_tensor,
                       {.path = files_[second.file].path, .tensor = second.name},
                       "the tensor is also in " + files_[tensors_[*twin].file].path);
}

std::span<const TensorInfo> Catalog::tensors_of(const FileInfo& file) const noexcept {
  return tensors().subspan(file.first_tensor, file.tensor_count);
}

const TensorInfo* Catalog::find(std::string_view name) const noexcept {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](std::uint32_t i, std::string_view key) { return tensors_[i].name < key; });
  if (found == by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

}  // namespace safeshuffle
