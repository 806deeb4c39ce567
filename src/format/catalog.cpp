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

Catalog::Catalog() : contents_(std::make_shared<const Contents>()) {}

Catalog::Catalog(std::vector<FileInfo> files, std::vector<TensorInfo> tensors, Names names) {
  count_tensors(files, tensors);
  Contents contents{std::move(files), std::move(tensors), {}, 0};
  contents.by_name = order_by_name(contents.tensors);
  for (const TensorInfo& tensor : contents.tensors) contents.tensor_bytes += tensor.bytes;
  contents_ = std::make_shared<const Contents>(std::move(contents));
  if (names == Names::unique) require_unique_names();
}

void Catalog::require_unique_names() const {
  const std::vector<TensorInfo>& tensors = contents_->tensors;
  const std::vector<std::uint32_t>& by_name = contents_->by_name;
  const auto same_name = [&](auto a, auto b) { return tensors[a].name == tensors[b].name; };
  const auto twin = std::ranges::adjacent_find(by_name, same_name);
  if (twin == by_name.end()) return;
  const TensorInfo& second = tensors[*std::next(twin)];
  format::raise_format(FormatErrc::duplicate_tensor,
                       {.path = files()[second.file].path, .tensor = second.name},
                       "the tensor is also in " + files()[tensors[*twin].file].path);
}

std::span<const TensorInfo> Catalog::tensors_of(const FileInfo& file) const noexcept {
  return tensors().subspan(file.first_tensor, file.tensor_count);
}

const TensorInfo* Catalog::find(std::string_view name) const noexcept {
  const auto& all = contents_->tensors;
  const auto& by_name = contents_->by_name;
  const auto found = std::ranges::lower_bound(
      by_name, name, {}, [&](std::uint32_t i) -> std::string_view { return all[i].name; });
  if (found == by_name.end() || all[*found].name != name) return nullptr;
  return &all[*found];
}

}  // namespace safeshuffle
