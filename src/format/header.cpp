#include "format/header.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "format/format_error.hpp"
#include "format/header_events.hpp"
#include "format/json_text.hpp"

namespace safeshuffle::format {
namespace {

std::uint64_t decode_little_endian(std::string_view bytes) noexcept {
  return std::accumulate(
      bytes.rbegin(), bytes.rend(), std::uint64_t{0},
      [](std::uint64_t value, char byte) { return value << 8 | static_cast<std::uint8_t>(byte); });
}

void check_header_length(std::uint64_t length, std::uint64_t file_size, const std::string& path) {
  const Place place{path, 0};
  if (length == 0) raise_format(FormatErrc::header_empty, place, "the header length is 0");
  if (length > max_header_bytes) {
    raise_format(FormatErrc::header_too_large, place,
                 "the header length of " + std::to_string(length) +
                     " bytes is above the limit of " + std::to_string(max_header_bytes));
  }
  if (length > file_size - prefix_bytes) {
    raise_format(FormatErrc::header_past_end, place,
                 "the header length of " + std::to_string(length) +
                     " bytes reaches past the end of the file of " + std::to_string(file_size));
  }
}

void check_file_size(std::uint64_t size, const std::string& path) {
  if (size < prefix_bytes) {
    raise_format(FormatErrc::file_too_short, {path, size},
                 "the file has " + std::to_string(size) + " bytes, not even a header length");
  }
}

void check_start(std::string_view json, const std::string& path) {
  if (json.front() != '{') {
    raise_format(FormatErrc::header_bad_start, {path, prefix_bytes},
                 "the header does not begin with '{'");
  }
}

void check_unique_names(const std::vector<Entry>& entries, const std::string& path) {
  std::vector<const Entry*> by_name;
  by_name.reserve(entries.size());
  for (const Entry& entry : entries) by_name.push_back(&entry);
  std::sort(by_name.begin(), by_name.end(), [](const Entry* a, const Entry* b) {
    return std::tie(a->tensor.name, a->key) < std::tie(b->tensor.name, b->key);
  });
  const auto twin = std::adjacent_find(
      by_name.begin(), by_name.end(),
      [](const Entry* a, const Entry* b) { return a->tensor.name == b->tensor.name; });
  if (twin == by_name.end()) return;
  const Entry& second = **std::next(twin);
  raise_format(FormatErrc::duplicate_key, {path, second.key, second.tensor.name},
               "the tensor appears twice in the header");
}

/// Checks that entries in order of their data leave no gap and do not overlap. Returns the end.
std::uint64_t check_tiling(const std::vector<Entry>& entries, const std::string& path) {
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.tensor.file_offset != end) {
      raise_format(FormatErrc::gap_or_overlap, {path, entry.key, entry.tensor.name},
                   "its data begins at " + std::to_string(entry.tensor.file_offset) +
                       " but the tensors before it end at " + std::to_string(end));
    }
    end = entry.end;
  }
  return end;
}

/// Checks that exactly the data of the tensors, `data_end` bytes, follows the header.
void check_data_size(const std::vector<Entry>& entries, std::uint64_t data_end,
                     std::uint64_t data_start, std::uint64_t file_size, const std::string& path) {
  const std::uint64_t present = file_size - data_start;
  if (present < data_end) {
    const auto cut = std::find_if(entries.begin(), entries.end(),
                                  [present](const Entry& entry) { return entry.end > present; });
    raise_format(FormatErrc::payload_truncated, {path, file_size, cut->tensor.name},
                 "the file ends here, " + std::to_string(data_end - present) +
                     " bytes before the end of the data");
  }
  if (present > data_end) {
    raise_format(FormatErrc::trailing_bytes, {path, data_start + data_end},
                 "the file has " + std::to_string(present - data_end) +
                     " extra bytes after the last tensor");
  }
}

}  // namespace

std::uint64_t parse_header_length(std::string_view prefix, std::uint64_t file_size,
                                  const std::string& path) {
  check_file_size(std::min<std::uint64_t>(prefix.size(), file_size), path);
  const std::uint64_t length = decode_little_endian(prefix.substr(0, prefix_bytes));
  check_header_length(length, file_size, path);
  return length;
}

Header parse_header(std::string_view json, std::uint64_t file_size, const std::string& path) {
  check_file_size(file_size, path);
  check_header_length(json.size(), file_size, path);
  check_start(json, path);

  JsonText text(json, path, prefix_bytes);
  HeaderEvents events(text);
  text.read(events);
  std::vector<Entry>& entries = events.entries;
  check_unique_names(entries, path);
  // An empty tensor shares its offset with the tensor after it, and precedes it.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.tensor.file_offset, a.end, a.tensor.name) <
           std::tie(b.tensor.file_offset, b.end, b.tensor.name);
  });
  const std::uint64_t data_end = check_tiling(entries, path);
  const std::uint64_t data_start = prefix_bytes + json.size();
  check_data_size(entries, data_end, data_start, file_size, path);

  Header header{.data_start = data_start, .tensors = {}, .metadata = std::move(events.metadata)};
  header.tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.tensor.file_offset += data_start;
    header.tensors.push_back(std::move(entry.tensor));
  }
  return header;
}

}  // namespace safeshuffle::format
