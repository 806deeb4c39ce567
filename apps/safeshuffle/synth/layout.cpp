#include "synth/layout.hpp"

#include <algorithm>
#include <filesystem>

#include "safeshuffle/error.hpp"

#include "core/posix_file.hpp"
#include "format/header.hpp"
#include "synth/embedded_layouts.hpp"

namespace safeshuffle::synth {
namespace {

constexpr std::uint64_t max_layout_bytes = std::uint64_t{64} << 20;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Grows the header by spaces, which the format allows before the data.
void pad(format::HeaderLayout& header, std::uint64_t bytes) {
  header.bytes.append(bytes, ' ');
  const std::uint64_t length = header.bytes.size() - format::prefix_bytes;
  for (std::size_t i = 0; i < format::prefix_bytes; ++i) {
    header.bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  }
  for (std::uint64_t& offset : header.file_offset) offset += bytes;
  header.file_size += bytes;
}

}  // namespace

std::vector<std::string> builtin_layouts() {
  std::vector<std::string> names;
  for (const core::EmbeddedFile& file : core::embedded_layouts()) names.emplace_back(file.stem);
  std::sort(names.begin(), names.end());
  return names;
}

Layout load_layout(std::string_view name_or_path) {
  for (const core::EmbeddedFile& file : core::embedded_layouts()) {
    if (file.stem == name_or_path) return parse_layout(file.text, std::string(file.stem));
  }
  const std::string path(name_or_path);
  if (!std::filesystem::is_regular_file(path)) {
    throw ConfigError("'" + path + "' is neither a layout file nor a built-in layout (" +
                      joined(builtin_layouts()) + ")");
  }
  return parse_layout(core::read_text(path, max_layout_bytes), path);
}

format::HeaderLayout header_of(const Layout& layout, const LayoutFile& file) {
  auto header = format::layout_header(file.tensors, layout.metadata, layout.alignment);
  if (!file.size) return header;
  if (header.file_size > *file.size) {
    throw ConfigError(ErrorRecord{.file = file.name, .cause = "larger than its declared size"});
  }
  pad(header, *file.size - header.file_size);
  return header;
}

std::uint64_t tensor_bytes(const Layout& layout) {
  std::uint64_t total = 0;
  for (const LayoutFile& file : layout.files) {
    const auto header = format::layout_header(file.tensors);
    total += header.file_size - header.bytes.size();
  }
  return total;
}

}  // namespace safeshuffle::synth
