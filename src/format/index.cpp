#include "format/index.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
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

  /// Call once, after all events. Throws FormatError.
  Index finish();

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
  std::uint32_t file_named(const std::string& name);
  void refuse_repeats() const;
  void order_files();
  [[noreturn]] void fail(FormatErrc code, std::uint64_t offset, std::string cause) const;

  const JsonText& text_;
  std::size_t depth_ = 0;  // of objects and arrays around the value being read
  bool in_map_ = false;    // the top-level value being read is the weight map
  bool found_ = false;
  Index index_;                                 // files in the order of the text
  std::map<std::string, std::uint32_t> files_;  // index into those, by name
  std::vector<std::uint64_t> offsets_;          // of the names of tensors in the text, by entry
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
  if (depth_ != 2 || !in_map_) return;
  index_.entries.push_back({std::move(text), 0});
  offsets_.push_back(text_.string_offset());
}

void IndexEvents::string(std::string& text) {
  check(Kind::string);
  if (depth_ != 2 || !in_map_) return;
  index_.entries.back().file = file_named(text);
}

void IndexEvents::begin_top_level_value(const std::string& name) {
  in_map_ = name == "weight_map";
  if (in_map_ && std::exchange(found_, true)) {
    fail(FormatErrc::duplicate_key, text_.string_offset(), "weight_map appears twice");
  }
}

// There are up to millions of entries, most of them with the file of the one before.
std::uint32_t IndexEvents::file_named(const std::string& name) {
  if (index_.entries.size() > 1) {
    const std::uint32_t last = index_.entries.rbegin()[1].file;
    if (index_.files[last].name == name) return last;
  }
  if (const auto known = files_.find(name); known != files_.end()) return known->second;
  if (!stays_inside(name)) {
    fail(FormatErrc::header_bad_json, text_.string_offset(),
         "weight_map names a file that is not in the directory of the index");
  }
  index_.files.push_back({name, index_.entries.back().tensor});
  return files_[name] = static_cast<std::uint32_t>(index_.files.size() - 1);
}

// By hash, because comparing numbers takes a fraction of the time of comparing names.
void IndexEvents::refuse_repeats() const {
  const std::vector<IndexEntry>& entries = index_.entries;
  std::vector<std::pair<std::size_t, std::uint32_t>> order;  // hash, entry
  order.reserve(entries.size());
  for (const IndexEntry& entry : entries) {
    order.emplace_back(std::hash<std::string>()(entry.tensor), order.size());
  }
  std::ranges::sort(order, [&](const auto& one, const auto& other) {
    if (one.first != other.first) return one.first < other.first;
    const int names = entries[one.second].tensor.compare(entries[other.second].tensor);
    return names != 0 ? names < 0 : one.second < other.second;
  });
  std::size_t repeat = entries.size();
  for (std::size_t at = 1; at < order.size(); ++at) {
    const std::uint32_t entry = order[at].second;
    if (entries[order[at - 1].second].tensor == entries[entry].tensor) {
      repeat = std::min<std::size_t>(repeat, entry);
    }
  }
  if (repeat == entries.size()) return;
  raise_format(FormatErrc::duplicate_key, {text_.path(), offsets_[repeat], entries[repeat].tensor},
               "weight_map names the tensor twice");
}

void IndexEvents::order_files() {
  std::vector<IndexedFile> ordered;
  std::vector<std::uint32_t> places(index_.files.size());
  for (const auto& [name, file] : files_) {
    places[file] = static_cast<std::uint32_t>(ordered.size());
    ordered.push_back(std::move(index_.files[file]));
  }
  index_.files = std::move(ordered);
  for (IndexEntry& entry : index_.entries) entry.file = places[entry.file];
}

Index IndexEvents::finish() {
  if (!found_) {
    raise_format(FormatErrc::header_bad_json, {text_.path(), 0}, "the index has no weight_map");
  }
  refuse_repeats();
  order_files();
  index_.entries.shrink_to_fit();
  return std::move(index_);
}

void IndexEvents::fail(FormatErrc code, std::uint64_t offset, std::string cause) const {
  const bool in_entry = in_map_ && depth_ == 2;
  raise_format(code,
               {text_.path(), offset, in_entry ? index_.entries.back().tensor : std::string()},
               std::move(cause));
}

}  // namespace

Index parse_index(std::string_view json, const std::string& path) try {
  JsonText text(json, path, 0);
  IndexEvents events(text);
  text.read(events);
  return events.finish();
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
