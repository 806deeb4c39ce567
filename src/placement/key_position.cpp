#include "placement/key_position.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "safeshuffle/error.hpp"

#include "core/text.hpp"
#include "format/json_text.hpp"

namespace safeshuffle::placement {
namespace {

/// Follows the path of each value through a text; remembers the longest prefix found of the path
/// that is searched for.
class PathFollower final : public format::JsonEvents {
 public:
  PathFollower(const format::JsonText& text, const std::string& wanted) noexcept
      : text_(text), wanted_(wanted) {}

  std::optional<std::uint64_t> offset;

  void begin_object() override { begin(false); }
  void end_object() override { open_.pop_back(); }
  void begin_array() override { begin(true); }
  void end_array() override { open_.pop_back(); }
  void key(std::string& name) override {
    const std::string& around = open_.back().path;
    value_ = around.empty() ? name : around + "." + name;
    compare(text_.string_offset());
  }
  void string(std::string&) override { skip(); }
  void integer(std::uint64_t) override { skip(); }
  void null() override { skip(); }
  void other() override { skip(); }

 private:
  /// An object or array around the value being read.
  struct Container {
    std::string path;
    bool is_array = false;
    std::size_t elements = 0;  // of an array, so far
  };

  void begin(bool is_array) {
    if (in_array()) {
      value_ = open_.back().path + "[" + std::to_string(open_.back().elements++) + "]";
      compare(text_.offset());
    }
    open_.push_back({value_, is_array});
  }

  // For a list of plain values, the position of the list is precise enough.
  void skip() {
    if (in_array()) ++open_.back().elements;
  }

  bool in_array() const { return !open_.empty() && open_.back().is_array; }

  void compare(std::uint64_t at) {
    if (value_.size() <= found_length_ || !wanted_.starts_with(value_)) return;
    const bool is_component = value_.size() == wanted_.size() || wanted_[value_.size()] == '.' ||
                              wanted_[value_.size()] == '[';
    if (!is_component) return;
    found_length_ = value_.size();
    offset = at;
  }

  const format::JsonText& text_;
  const std::string& wanted_;
  std::vector<Container> open_;
  std::string value_;  // path of the value being read
  std::size_t found_length_ = 0;
};

}  // namespace

std::string position_of_key(const Document& document, const std::string& path) {
  if (path.empty()) return {};
  format::JsonText text(document.text, document.name, 0);
  PathFollower follower(text, path);
  try {
    text.read(follower);
  } catch (const FormatError&) {
    return {};
  }
  return follower.offset ? core::line_and_column(document.text, *follower.offset) : std::string();
}

}  // namespace safeshuffle::placement
