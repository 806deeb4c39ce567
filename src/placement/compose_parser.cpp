// Reads the section `compose`.
#include <algorithm>
#include <cstddef>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/arithmetic.hpp"
#include "placement/compose.hpp"
#include "placement/name_pattern.hpp"

namespace safeshuffle::placement {
namespace {

using nlohmann::json;

class ComposeParser {
 public:
  ComposeParser(const RuleParser& parser, const Quantities& quantities, const Document& document)
      : parser_(parser), quantities_(quantities), document_(document) {}

  void add(const json& value, const std::string& path) {
    const JsonObject entry(value, path, document_);
    if (entry.has("join")) return add_join(entry, path);
    if (entry.has("split")) return add_split(entry, path);
    if (entry.has("tie")) return add_tie(entry, path);
    if (entry.has("pad")) return add_pad(entry, path);
    fail_config(document_, path, R"(an entry has "join", "split", "tie" or "pad")");
  }

  Compose finish() { return std::move(compose_); }

 private:
  static Entry common(const JsonObject& entry, const std::string& path) {
    return {path, entry.flag("optional", false)};
  }

  void add_join(const JsonObject& entry, const std::string& path) {
    entry.allow_only({"join", "as", "dim", "optional"});
    JoinEntry join{common(entry, path), several(entry, "join"), entry.text("as"),
                   parser_.parse_dim(entry)};
    check_alike(entry, "join", join.parts, join.parts);
    check_alike(entry, "as", {join.as}, join.parts);
    compose_.joins.push_back(std::move(join));
  }

  void add_split(const JsonObject& entry, const std::string& path) {
    entry.allow_only({"split", "into", "dim", "sizes", "optional"});
    SplitEntry split{common(entry, path), entry.text("split"), several(entry, "into"),
                     parser_.parse_sizes(entry, "sizes"), parser_.parse_dim(entry)};
    check_alike(entry, "split", {split.name}, split.into);
    check_alike(entry, "into", split.into, split.into);
    if (split.sizes.size() != split.into.size()) {
      entry.fail("sizes", "not one size for each name in \"into\"");
    }
    compose_.splits.push_back(std::move(split));
  }

  void add_tie(const JsonObject& entry, const std::string& path) {
    entry.allow_only({"tie", "if", "optional"});
    TieEntry tie{common(entry, path), several(entry, "tie"), true};
    check_alike(entry, "tie", tie.names, tie.names);
    if (entry.has("if")) tie.tied = quantities_.flag(entry.text("if"));
    compose_.ties.push_back(std::move(tie));
  }

  void add_pad(const JsonObject& entry, const std::string& path) {
    entry.allow_only({"pad", "dim", "multiple", "optional"});
    PadEntry pad{common(entry, path), entry.text("pad"), parser_.parse_dim(entry), 1};
    check_alike(entry, "pad", {pad.name}, {pad.name});
    if (!entry.has("multiple")) entry.fail("multiple", "missing");
    // Without a field of its own, the count would be the quantity of that name.
    pad.multiple = *parser_.parse_count(entry, "multiple", {});
    compose_.pads.push_back(std::move(pad));
  }

  static std::vector<std::string> several(const JsonObject& entry, std::string_view field) {
    std::vector<std::string> names = entry.strings(field);
    if (names.size() < 2) entry.fail(field, "not a list of two or more names");
    return names;
  }

  /// Each name is possible and given once, with as many `*` as the first of `others`.
  void check_alike(const JsonObject& entry, std::string_view field,
                   const std::vector<std::string>& names, const std::vector<std::string>& others) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      check_key({names[i], entry.path(field)}, document_);
      if (count_numbers(names[i]) != count_numbers(others.front())) {
        entry.fail(field, "\"" + names[i] + "\" and \"" + others.front() +
                              "\" must have the same number of \"*\"");
      }
      const auto before = names.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::find(names.begin(), before, names[i]) != before) {
        entry.fail(field, "\"" + names[i] + "\" is there twice");
      }
    }
  }

  const RuleParser& parser_;
  const Quantities& quantities_;
  const Document& document_;
  Compose compose_;
};

}  // namespace

Compose parse_compose(const json& list, const RuleParser& parser, const Quantities& quantities,
                      const Document& document) {
  if (!list.is_array()) fail_config(document, "compose", "not a list");
  ComposeParser entries(parser, quantities, document);
  for (std::size_t i = 0; i < list.size(); ++i) {
    entries.add(list[i], "compose[" + std::to_string(i) + "]");
  }
  return entries.finish();
}

}  // namespace safeshuffle::placement
