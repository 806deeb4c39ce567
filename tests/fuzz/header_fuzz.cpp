// libFuzzer: any bytes as a safetensors file. The parser may refuse them with a FormatError and
// nothing else; what it accepts must hold together and survive being laid out again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "safeshuffle/error.hpp"

#include "format/header.hpp"
#include "format/layout_header.hpp"

namespace {

using namespace safeshuffle;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_tiling(const format::Header& header, std::uint64_t file_size) {
  std::uint64_t end = header.data_start;
  for (const TensorInfo& tensor : header.tensors) {
    require(tensor.file_offset == end);
    end += tensor.bytes;
  }
  require(end == file_size);
}

void check_round_trip(const format::Header& header) {
  std::vector<format::TensorSpec> tensors;
  for (const TensorInfo& tensor : header.tensors) {
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const format::HeaderLayout layout = format::layout_header(tensors, header.metadata);
  const std::string_view json = std::string_view(layout.bytes).substr(format::prefix_bytes);
  const format::Header again = format::parse_header(json, layout.file_size, "again");
  require(again.metadata == header.metadata);
  require(again.tensors.size() == header.tensors.size());
  check_tiling(again, layout.file_size);
}

/// Parses `json` as the header of a file that holds `payload` bytes of data.
void parse(std::string_view json, std::uint64_t payload) {
  const std::uint64_t file_size = format::prefix_bytes + json.size() + payload;
  const format::Header header = format::parse_header(json, file_size, "fuzzed");
  check_tiling(header, file_size);
  check_round_trip(header);
}

}  // namespace

/// The first two bytes are the size of the data: a real length prefix would only teach the fuzzer
/// to count.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    format::parse_header_length(text, size, "fuzzed");
  } catch (const FormatError&) {
  }
  if (size < 2) return 0;
  try {
    parse(text.substr(2), data[0] | std::uint64_t{data[1]} << 8);
  } catch (const FormatError&) {
  }
  return 0;
}
