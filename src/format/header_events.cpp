#include "format/header_events.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/tensor_bytes.hpp"
#include "core/text.hpp"
#include "format/format_error.hpp"

namespace safeshuffle::format {
namespace {

constexpr std::array<std::string_view, 3> field_names{"dtype", "shape", "data_offsets"};

/// `text` for a message, shortened to the length of the longest real names.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t limit = 100;
  return "'" + core::shortened(text, limit) + "'";
}

}  // namespace

void HeaderEvents::begin_object() {
  switch (level_) {
    case Level::outside:
      level_ = Level::header;
      return;
    case Level::header:
      level_ = in_metadata_ ? Level::metadata : Level::entry;
      return;
    case Level::metadata:
    case Level::entry:
    case Level::array:
      refuse_value();
  }
}

void HeaderEvents::end_object() {
  if (level_ == Level::entry) finish_entry();
  level_ = level_ == Level::header ? Level::outside : Level::header;
}

void HeaderEvents::begin_array() {
  if (level_ == Level::array) {
    fail(FormatErrc::nesting_too_deep, text_.offset(), "nested deeper than any valid header");
  }
  if (level_ != Level::entry || field_ == dtype) refuse_value();
  level_ = Level::array;
  numbers_.clear();
}

void HeaderEvents::end_array() {
  if (field_ == shape) {
    entries.back().tensor.shape = numbers_;
  } else {
    finish_offsets();
  }
  level_ = Level::entry;
}

void HeaderEvents::key(std::string& text) {
  if (level_ == Level::header) {
    begin_top_level_value(text);
  } else if (level_ == Level::metadata) {
    begin_metadata_value(text);
  } else {
    begin_field(text);
  }
}

void HeaderEvents::string(std::string& text) {
  if (level_ == Level::metadata) {
    *metadata_value_ = std::move(text);
    return;
  }
  if (level_ != Level::entry || field_ != dtype) refuse_value();
  const std::optional<DType> parsed = parse_dtype(text);
  if (!parsed) {
    fail(FormatErrc::unknown_dtype, text_.string_offset(), "unknown dtype " + in_quotes(text));
  }
  entries.back().tensor.dtype = *parsed;
}

void HeaderEvents::integer(std::uint64_t value) {
  if (level_ != Level::array) refuse_value();
  numbers_.push_back(value);
}

void HeaderEvents::null() {
  if (level_ != Level::header || !in_metadata_) refuse_value();
}

// A copy has just the memory it needs, and leaves the parser its own.
void HeaderEvents::begin_top_level_value(const std::string& name) {
  in_metadata_ = name == "__metadata__";
  if (!in_metadata_) {
    entries.emplace_back().tensor.name = name;
    entries.back().key = text_.string_offset();
    seen_ = {};
  } else if (std::exchange(metadata_seen_, true)) {
    fail(FormatErrc::duplicate_key, text_.string_offset(), "'__metadata__' appears twice");
  }
}

void HeaderEvents::begin_metadata_value(const std::string& name) {
  const auto [entry, inserted] = metadata.try_emplace(name);
  if (!inserted) {
    fail(FormatErrc::duplicate_key, text_.string_offset(),
         "metadata key " + in_quotes(entry->first) + " appears twice");
  }
  metadata_value_ = &entry->second;
}

void HeaderEvents::begin_field(const std::string& name) {
  const auto found = std::find(field_names.begin(), field_names.end(), name);
  if (found == field_names.end()) {
    fail(FormatErrc::unknown_field, text_.string_offset(), "unknown field " + in_quotes(name));
  }
  field_ = static_cast<Field>(found - field_names.begin());
  if (std::exchange(seen_[field_], true)) {
    fail(FormatErrc::duplicate_key, text_.string_offset(), "field '" + name + "' appears twice");
  }
}

void HeaderEvents::finish_offsets() {
  if (numbers_.size() != 2) refuse_field();
  entries.back().tensor.file_offset = numbers_[0];
  entries.back().end = numbers_[1];
}

void HeaderEvents::finish_entry() {
  const Entry& entry = entries.back();
  const auto missing = std::find(seen_.begin(), seen_.end(), false);
  if (missing != seen_.end()) {
    const auto index = static_cast<std::size_t>(missing - seen_.begin());
    fail(FormatErrc::missing_field, entry.key,
         "field " + in_quotes(field_names[index]) + " is missing");
  }
  if (entry.tensor.file_offset > entry.end) {
    fail(FormatErrc::offsets_reversed, entry.key,
         "data_offsets begin at " + std::to_string(entry.tensor.file_offset) + " but end at " +
             std::to_string(entry.end));
  }
  set_bytes();
}

void HeaderEvents::set_bytes() {
  Entry& entry = entries.back();
  const std::optional<std::uint64_t> size =
      core::tensor_bits(entry.tensor.dtype, entry.tensor.shape);
  if (!size) {
    fail(FormatErrc::shape_overflow, entry.key, "the size of the tensor overflows 64 bits");
  }
  if (*size % 8 != 0) {
    fail(FormatErrc::not_byte_sized, entry.key,
         "its " + std::to_string(*size) + " bits do not fill whole bytes");
  }
  entry.tensor.bytes = *size / 8;
  const std::uint64_t stored = entry.end - entry.tensor.file_offset;
  if (stored != entry.tensor.bytes) {
    fail(FormatErrc::size_mismatch, entry.key,
         "dtype and shape need " + std::to_string(entry.tensor.bytes) +
             " bytes but data_offsets span " + std::to_string(stored));
  }
}

void HeaderEvents::refuse_value() const {
  if (level_ == Level::entry || level_ == Level::array) refuse_field();
  if (in_metadata_) {
    fail(FormatErrc::metadata_not_strings, text_.offset(),
         "'__metadata__' is not an object of strings");
  }
  fail(FormatErrc::entry_not_object, text_.offset(), "the entry is not an object");
}

void HeaderEvents::refuse_field() const {
  switch (field_) {
    case shape:
      fail(FormatErrc::bad_shape, text_.offset(), "shape is not an array of integers in [0, 2^64)");
    case data_offsets:
      fail(FormatErrc::bad_offsets, text_.offset(),
           "data_offsets are not two integers in [0, 2^64)");
    default:
      fail(FormatErrc::unknown_dtype, text_.offset(), "dtype is not a string");
  }
}

void HeaderEvents::fail(FormatErrc code, std::uint64_t offset, std::string cause) const {
  const bool in_tensor = level_ != Level::outside && !in_metadata_ && !entries.empty();
  raise_format(code, {text_.path(), offset, in_tensor ? entries.back().tensor.name : std::string()},
               std::move(cause));
}

}  // namespace safeshuffle::format
