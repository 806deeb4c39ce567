#include "format/layout_header.hpp"

#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"
#include "core/tensor_bytes.hpp"
#include "format/header.hpp"

namespace safeshuffle::format {
namespace {

constexpr std::string_view metadata_key = "__metadata__";

[[noreturn]] void refuse(std::string cause, const std::string& tensor = {}) {
  throw ConfigError(ErrorRecord{.tensor = tensor, .cause = std::move(cause)});
}

/// `name` is that of the tensor, for messages.
std::string dumped(const nlohmann::ordered_json& value, const std::string& name) try {
  return value.dump();
} catch (const nlohmann::ordered_json::type_error&) {
  refuse("a name or metadata text is not valid UTF-8", name);
}

std::uint64_t tensor_bytes(const TensorSpec& tensor) {
  const std::optional<std::uint64_t> size = core::tensor_bits(tensor.dtype, tensor.shape);
  if (!size) refuse("the size of the tensor overflows 64 bits", tensor.name);
  if (*size % 8 != 0) refuse("the tensor does not fill whole bytes", tensor.name);
  return *size / 8;
}

void check_names(const std::vector<TensorSpec>& tensors) {
  std::set<std::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name == metadata_key) refuse("the name is reserved by the format", tensor.name);
    if (!names.insert(tensor.name).second) refuse("the name appears twice", tensor.name);
  }
}

/// A member of the header, with its fields in the order that files usually have.
std::string entry_json(const TensorSpec& tensor, std::uint64_t begin, std::uint64_t end) {
  const nlohmann::ordered_json entry{
      {"dtype", name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  return dumped(tensor.name, tensor.name) + ':' + entry.dump();
}

/// Where tensors begin in the data, and after them where the data ends.
std::vector<std::uint64_t> data_offsets(const std::vector<TensorSpec>& tensors) {
  std::vector<std::uint64_t> offsets{0};
  for (const TensorSpec& tensor : tensors) {
    const auto end = core::checked_add(offsets.back(), tensor_bytes(tensor));
    if (!end) refuse("the size of the file overflows 64 bits", tensor.name);
    offsets.push_back(*end);
  }
  return offsets;
}

std::string header_json(const std::vector<TensorSpec>& tensors,
                        const std::map<std::string, std::string>& metadata,
                        const std::vector<std::uint64_t>& offsets) {
  std::string json = "{";
  if (!metadata.empty()) {
    const std::string key(metadata_key);
    json += dumped(key, key) + ':' + dumped(metadata, key);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (json.size() > 1) json += ',';
    json += entry_json(tensors[i], offsets[i], offsets[i + 1]);
  }
  return json + '}';
}

/// Pads with spaces until prefix and JSON fill a multiple of `alignment`.
void pad(std::string& json, std::uint64_t alignment) {
  if (alignment == 0 || alignment > max_header_bytes) {
    refuse("the alignment must lie in 1 to " + std::to_string(max_header_bytes));
  }
  const std::uint64_t start = core::ceil_div(prefix_bytes + json.size(), alignment) * alignment;
  json.resize(start - prefix_bytes, ' ');
  if (json.size() > max_header_bytes) {
    refuse("the header of " + std::to_string(json.size()) + " bytes is above the limit of " +
           std::to_string(max_header_bytes));
  }
}

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (std::uint64_t i = 0; i < prefix_bytes; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

}  // namespace

HeaderLayout layout_header(const std::vector<TensorSpec>& tensors,
                           const std::map<std::string, std::string>& metadata,
                           std::uint64_t alignment) {
  check_names(tensors);
  std::vector<std::uint64_t> offsets = data_offsets(tensors);
  std::string json = header_json(tensors, metadata, offsets);
  pad(json, alignment);
  const std::uint64_t data_start = prefix_bytes + json.size();
  const auto file_size = core::checked_add(data_start, offsets.back());
  if (!file_size) refuse("the size of the file overflows 64 bits");
  offsets.pop_back();
  for (std::uint64_t& offset : offsets) offset += data_start;
  return {little_endian(json.size()) + json, std::move(offsets), *file_size};
}

}  // namespace safeshuffle::format
