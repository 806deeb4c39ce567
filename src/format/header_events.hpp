// Collects the tensors and metadata of a header from the events of its JSON text. Each entry is
// validated by itself here; parse_header checks how they fit together.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "safeshuffle/error.hpp"
#include "safeshuffle/metadata.hpp"

#include "format/json_text.hpp"

namespace safeshuffle::format {

/// One entry of a header. Here, `tensor.file_offset` counts from the start of the data.
struct Entry {
  TensorInfo tensor;
  std::uint64_t end = 0;  ///< of its data, counted likewise
  std::uint64_t key = 0;  ///< byte offset in the file of the entry's key
};

/// Collects entries; throws FormatError at the first defect.
class HeaderEvents final : public JsonEvents {
 public:
  explicit HeaderEvents(const JsonText& text) noexcept : text_(text) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  void begin_object() override;
  void end_object() override;
  void begin_array() override;
  void end_array() override;
  void key(std::string& text) override;
  void string(std::string& text) override;
  void integer(std::uint64_t value) override;
  void null() override;
  void other() override { refuse_value(); }

 private:
  /// What the value being read belongs to.
  enum class Level { outside, header, metadata, entry, array };
  enum Field : std::size_t { dtype, shape, data_offsets, field_count };

  void begin_top_level_value(const std::string& name);
  void begin_metadata_value(const std::string& name);
  void begin_field(const std::string& name);
  void finish_offsets();
  void finish_entry();
  void set_bytes();
  [[noreturn]] void refuse_value() const;
  [[noreturn]] void refuse_field() const;
  [[noreturn]] void fail(FormatErrc code, std::uint64_t offset, std::string cause) const;

  const JsonText& text_;
  Level level_ = Level::outside;
  bool in_metadata_ = false;  // the top-level value being read is __metadata__
  bool metadata_seen_ = false;
  std::string* metadata_value_ = nullptr;
  Field field_ = dtype;
  std::array<bool, field_count> seen_{};  // fields of the entry being read
  std::vector<std::uint64_t> numbers_;    // of the array being read
};

}  // namespace safeshuffle::format
