#include "placement/document.hpp"

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/text.hpp"
#include "format/foreign_content.hpp"
#include "format/json_text.hpp"

namespace safeshuffle::placement {
namespace {

[[noreturn]] void fail_config_at(const Document& document, std::uint64_t offset,
                                 const std::string& key, const std::string& cause) {
  ErrorRecord error = config_error(document, key, cause);
  error.cause = core::line_and_column(document.text, offset) + ": " + error.cause;
  throw ConfigError(std::move(error));
}

constexpr std::size_t max_depth = 32;

/// Sees every event of the parser; the keys of all open objects are remembered.
class Guard final : public format::JsonEvents {
 public:
  Guard(const format::JsonText& text, const Document& document) noexcept
      : text_(text), document_(document) {}

  void begin_object() override { begin(); }
  void end_object() override { open_.pop_back(); }
  void begin_array() override { begin(); }
  void end_array() override { open_.pop_back(); }
  void key(std::string& name) override {
    if (open_.back().insert(name).second) return;
    fail_config_at(document_, text_.string_offset(), name, "appears twice");
  }
  void string(std::string&) override {}
  void integer(std::uint64_t) override {}
  void null() override {}
  void other() override {}

 private:
  void begin() {
    if (open_.size() == max_depth) {
      fail_config_at(document_, text_.offset(), "",
                     "nested deeper than " + std::to_string(max_depth) + " levels");
    }
    open_.emplace_back();
  }

  const format::JsonText& text_;
  const Document& document_;
  std::vector<std::set<std::string>> open_;
};

}  // namespace

ErrorRecord config_error(const Document& document, const std::string& key,
                         const std::string& cause) {
  return {.file = document.name, .cause = (key.empty() ? "" : "\"" + key + "\": ") + cause};
}

void fail_config(const Document& document, const std::string& key, const std::string& cause) {
  throw ConfigError(config_error(document, key, cause));
}

nlohmann::json parse_strict(const Document& document) try {
  format::JsonText text(document.text, document.name, 0);
  Guard guard(text, document);
  text.read(guard);
  return nlohmann::json::parse(document.text);
} catch (const FormatError& error) {
  const std::string foreign = format::foreign_content(document.text);
  if (!foreign.empty()) fail_config(document, "", foreign);
  const ErrorRecord& record = error.record();
  fail_config_at(document, record.offset.value_or(0), "", record.cause);
}

}  // namespace safeshuffle::placement
