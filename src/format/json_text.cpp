#include "format/json_text.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "format/format_error.hpp"

namespace safeshuffle::format {
namespace {

using Json = nlohmann::json;

/// An iterator whose position is visible: nlohmann's parser shows its own in errors only.
class SharedCursor {
 public:
  // NOLINTBEGIN(readability-identifier-naming): names that std::iterator_traits asks for
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  // NOLINTEND(readability-identifier-naming)

  explicit SharedCursor(const char*& at) noexcept : at_(&at) {}
  reference operator*() const noexcept { return **at_; }
  SharedCursor& operator++() noexcept {
    ++*at_;
    return *this;
  }
  bool operator==(const SharedCursor& other) const noexcept { return *at_ == *other.at_; }
  bool operator!=(const SharedCursor& other) const noexcept { return *at_ != *other.at_; }

 private:
  const char** at_;
};

/// ": unexpected '}'; expected string literal", extracted from the parser's message, which begins
/// with internal names and may end with a text of any length.
std::string reason(std::string_view message) {
  const auto begin = message.find(" - ");
  if (begin == std::string_view::npos) return {};
  return ": " + std::string(message.substr(begin + 3, message.find("; last read") - begin - 3));
}

/// nlohmann's events as ours.
class Adapter final : public nlohmann::json_sax<Json> {
 public:
  Adapter(const JsonText& text, JsonEvents& events) noexcept : text_(text), events_(events) {}

  bool null() override { return events_.null(), true; }
  bool boolean(bool) override { return events_.other(), true; }
  bool number_integer(number_integer_t) override { return events_.other(), true; }
  bool number_unsigned(number_unsigned_t value) override { return events_.integer(value), true; }
  bool number_float(number_float_t, const string_t&) override { return events_.other(), true; }
  bool string(string_t& text) override { return events_.string(text), true; }
  bool binary(binary_t&) override { return events_.other(), true; }
  bool start_object(std::size_t) override { return events_.begin_object(), true; }
  bool key(string_t& text) override { return events_.key(text), true; }
  bool end_object() override { return events_.end_object(), true; }
  bool start_array(std::size_t) override { return events_.begin_array(), true; }
  bool end_array() override { return events_.end_array(), true; }

  bool parse_error(std::size_t bytes_read, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int number_overflow = 406;
    if (error.id == number_overflow) events_.other();
    text_.refuse(bytes_read, reason(error.what()));
  }

 private:
  const JsonText& text_;
  JsonEvents& events_;
};

constexpr std::size_t max_depth = 32;

/// Sees every event of the parser; the keys of all open objects are remembered.
class Guard final : public JsonEvents {
 public:
  explicit Guard(const JsonText& text) noexcept : text_(text) {}

  void begin_object() override { begin(); }
  void end_object() override { open_.pop_back(); }
  void begin_array() override { begin(); }
  void end_array() override { open_.pop_back(); }
  void key(std::string& name) override {
    if (open_.back().insert(name).second) return;
    raise_format(FormatErrc::duplicate_key, {text_.path(), text_.string_offset(), name},
                 "appears twice");
  }
  void string(std::string&) override {}
  void integer(std::uint64_t) override {}
  void null() override {}
  void other() override {}

 private:
  void begin() {
    if (open_.size() == max_depth) {
      raise_format(FormatErrc::nesting_too_deep, {text_.path(), text_.offset()},
                   "nested deeper than " + std::to_string(max_depth) + " levels");
    }
    open_.emplace_back();
  }

  const JsonText& text_;
  std::vector<std::set<std::string>> open_;
};

}  // namespace

void JsonText::read(JsonEvents& events) {
  // The parser mistakes a NUL byte for the end of the text.
  const auto nul = std::find(at_, end_, '\0');
  if (nul != end_) refuse(static_cast<std::size_t>(nul - begin_) + 1, ": a NUL byte");
  Adapter adapter(*this, events);
  const char* end = end_;
  Json::sax_parse(SharedCursor(at_), SharedCursor(end), &adapter);
}

void JsonText::refuse(std::size_t bytes_read, const std::string& reason) const {
  // At the end of the text the parser counts one byte more than there is.
  const bool ended = bytes_read > static_cast<std::size_t>(end_ - begin_);
  const bool is_text = reason.find("ill-formed UTF-8") == std::string::npos;
  raise_format(is_text ? FormatErrc::header_bad_json : FormatErrc::header_not_utf8,
               {path_, start_ + bytes_read - 1},
               ended ? "the JSON text ends early" : "not valid JSON" + reason);
}

std::uint64_t JsonText::string_offset() const noexcept {
  const auto is_escaped = [this](const char* byte) {
    const char* other = byte;
    while (other != begin_ && other[-1] == '\\') --other;
    return (byte - other) % 2 != 0;
  };
  const char* quote = at_ - 2;
  while (*quote != '"' || is_escaped(quote)) --quote;
  return offset_of(quote);
}

nlohmann::json parse_strict(const std::string& json, const std::string& path) {
  JsonText text(json, path, 0);
  Guard guard(text);
  text.read(guard);
  return Json::parse(json);
}

}  // namespace safeshuffle::format
