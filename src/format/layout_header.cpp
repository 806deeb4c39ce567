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

/// `text` as a JSON string, quotes included.
std::string json_string(const std::string& text) try {
  return nlohmann::json(text).dump();
} catch (const nlohmann::json::type_error&) {
  refuse("a name or metadata text is not valid UTF-8", text);
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

std::string joined(const Shape& shape) {
  std::string text;
  for (const std::uint64_t extent : shape) {
    if (!text.empty()) text += ',';
    text += std::to_string(extent);
  }
  return text;
}

std::string entry_json(const TensorSpec& tensor, std::uint64_t begin, std::uint64_t end) {
  return json_string(tensor.name) + R"(:{"dtype":")" + std::string(name(tensor.dtype)) +
         R"(","shape":[)" + joined(tensor.shape) + R"(],"data_offsets":[)" + std::to_string(begin) +
         ',' + std::to_string(end) + "]}";
}

std::string metadata_json(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    if (!text.empty()) text += ',';
    text += json_string(key) + ':' + json_string(value);
  }
  return '"' + std::string(metadata_key) + "\":{" + text + '}';
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
  if (!metadata.empty()) json += metadata_json(metadata);
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
