#include "format/index.hpp"

#include <cstddef>
#include <filesystem>
#include <tuple>
#include <utility>

#include "core/text.hpp"
#include "format/foreign_content.hpp"
#include "format/format_error.hpp"
#include "format/json_text.hpp"

namespace safeshuffle::format {
namespace {

/// Whether `name` is a file in or below the directory it is relative to.
bool stays_inside(const std::string& name) {
  if (name.find('\0') != std::string::npos) return false;
  const std::filesystem::path path = std::filesystem::path(name).lexically_normal();
  return path.is_relative() && path.has_filename() && path != "." && *path.begin() != "..";
}

/// Collects the weight map and skips everything else in an index.
class IndexEvents final : public JsonEvents {
 public:
  explicit IndexEvents(const JsonText& text) noexcept : text_(text) {}

  WeightMap weight_map;
  bool found = false;

  void begin_object() override { begin(Kind::object); }
  void end_object() override { --depth_; }
  void begin_array() override { begin(Kind::other); }
  void end_array() override { --depth_; }
  void key(std::string& text) override;
  void string(std::string& text) override;
  void integer(std::uint64_t) override { check(Kind::other); }
  void null() override { check(Kind::other); }
  void other() override { check(Kind::other); }

 private:
  enum class Kind { object, string, other };

  void begin(Kind kind) {
    check(kind);
    ++depth_;
  }
  void check(Kind kind) const;
  void begin_top_level_value(const std::string& name);
  void begin_file_name(std::string& tensor);
  [[noreturn]] void fail(FormatErrc code, std::uint64_t offset, std::string cause) const;

  const JsonText& text_;
  std::size_t depth_ = 0;  // of objects and arrays around the value being read
  bool in_map_ = false;    // the top-level value being read is the weight map
  WeightMap::iterator entry_;
};

void IndexEvents::check(Kind kind) const {
  if (depth_ == 0 && kind != Kind::object) {
    fail(FormatErrc::header_bad_json, text_.offset(), "the index is not an object");
  }
  if (depth_ == 1 && in_map_ && kind != Kind::object) {
    fail(FormatErrc::header_bad_json, text_.offset(), "weight_map is not an object");
  }
  if (depth_ == 2 && in_map_ && kind != Kind::string) {
    fail(FormatErrc::header_bad_json, text_.offset(),
         "the file name in weight_map is not a string");
  }
}

void IndexEvents::key(std::string& text) {
  if (depth_ == 1) begin_top_level_value(text);
  if (depth_ == 2 && in_map_) begin_file_name(text);
}

void IndexEvents::string(std::string& text) {
  check(Kind::string);
  if (depth_ != 2 || !in_map_) return;
  if (!stays_inside(text)) {
    fail(FormatErrc::header_bad_json, text_.string_offset(),
         "weight_map names a file that is not in the directory of the index");
  }
  entry_->second = std::move(text);
}

void IndexEvents::begin_top_level_value(const std::string& name) {
  in_map_ = name == "weight_map";
  if (in_map_ && std::exchange(found, true)) {
    fail(FormatErrc::duplicate_key, text_.string_offset(), "weight_map appears twice");
  }
}

void IndexEvents::begin_file_name(std::string& tensor) {
  bool inserted = false;
  std::tie(entry_, inserted) = weight_map.try_emplace(std::move(tensor));
  if (!inserted) {
    fail(FormatErrc::duplicate_key, text_.string_offset(), "weight_map names the tensor twice");
  }
}

void IndexEvents::fail(FormatErrc code, std::uint64_t offset, std::string cause) const {
  const bool in_entry = in_map_ && depth_ == 2;
  raise_format(code, {text_.path(), offset, in_entry ? entry_->first : std::string()},
               std::move(cause));
}

}  // namespace

WeightMap parse_index(std::string_view json, const std::string& path) try {
  JsonText text(json, path, 0);
  IndexEvents events(text);
  text.read(events);
  if (!events.found) {
    raise_format(FormatErrc::header_bad_json, {path, 0}, "the index has no weight_map");
  }
  return std::move(events.weight_map);
} catch (const FormatError& error) {
  ErrorRecord record = error.record();
  const std::string foreign = foreign_content(json);
  const std::string position = core::line_and_column(json, record.offset.value_or(0));
  record.cause = foreign.empty() ? position + ": " + record.cause : foreign;
  throw FormatError(std::move(record));
}

std::string indexed_path(const std::string& index_path, const std::string& name) {
  return (std::filesystem::path(index_path).parent_path() / name).string();
}

}  // namespace safeshuffle::format
