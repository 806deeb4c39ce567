#include "placement/rule_parser.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/arithmetic.hpp"
#include "placement/matcher.hpp"

namespace safeshuffle::placement {
namespace {

using nlohmann::json;

constexpr unsigned max_dim = 64;

// Far above any model's; bounds the recursion over components.
constexpr std::ptrdiff_t max_components = 64;

Rule make_rule(CutRule cut) {
  if (cut.weight || cut.bias) return cut;
  return Keep{};
}

CutRule cut_by_style(const Style& style, bool uneven) {
  CutRule cut{
      .weight = style.weight, .bias = style.bias, .sharing = {per_element, uneven}, .parts = {}};
  if (style.blocks > 1) {
    cut.sharing = {.units = 1, .replicate = true};
    cut.parts.assign(style.blocks, {1, {per_element, uneven}});
  }
  return cut;
}

const Style& style_of(const JsonObject& entry) {
  return parse_style(entry.text("style"), entry.path("style"), entry.document());
}

bool is_dim(const json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= max_dim;
  return value.get<std::int64_t>() >= -std::int64_t{max_dim};
}

Keep parse_rank(const JsonObject& place) {
  place.allow_only({"rank"});
  const json* rank = place.find("rank");
  if (rank == nullptr || !rank->is_number_unsigned() || *rank > UINT32_MAX) {
    place.fail("rank", "not a rank");
  }
  return {Placement::Kind::single, rank->get<std::uint32_t>(), true};
}

Keep parse_place(const JsonObject& entry) {
  entry.allow_only({"match", "where", "optional", "place"});
  const json& place = *entry.find("place");
  if (place == "replicate") return {Placement::Kind::replicated, 0, true};
  if (place == "drop") return {Placement::Kind::dropped, 0, true};
  if (place.is_object()) return parse_rank({place, entry.path("place"), entry.document()});
  entry.fail("place", R"(not "replicate", "drop" or {"rank": k})");
}

void add_size(std::uint64_t size, std::uint64_t& total, const JsonObject& entry,
              std::string_view field) {
  const auto sum = core::checked_add(total, size);
  if (!sum) entry.fail(field, "the sizes are too large");
  total = *sum;
}

ErrorRecord unknown_error(const std::string& names, const std::string& path,
                          const Document& document) {
  return config_error(document, path,
                      "config.json does not give " + (names.empty() ? "a number" : names));
}

}  // namespace

void check_key(const Key& key, const Document& document) {
  if (key.name.empty()) fail_config(document, key.path, "empty");
  if (std::count(key.name.begin(), key.name.end(), '.') >= max_components) {
    fail_config(document, key.path, "more than " + std::to_string(max_components) + " components");
  }
}

Rule RuleParser::parse_word(const Style& style) const {
  if (style.deals_experts) return DealRule{quantities_.find("experts"), uneven_};
  return make_rule(cut_by_style(style, uneven_));
}

Rule RuleParser::parse_stack(const Style& style) const {
  Rule rule = parse_word(style);
  if (auto* cut = std::get_if<CutRule>(&rule)) cut->uncut = quantities_.find("hidden_size");
  return rule;
}

Rule RuleParser::parse_heads(const Style& style, std::string_view quantity, const std::string& path,
                             const Document& document) const {
  CutRule cut = cut_by_style(style, uneven_);
  const auto heads = quantities_.find(quantity);
  if (!heads) return Refusal{unknown_error("'" + std::string(quantity) + "'", path, document)};
  cut.sharing.units = *heads;
  return cut;
}

DealRule RuleParser::parse_experts(const JsonObject& section) const {
  section.allow_only({"match", "count", "uneven"});
  return {parse_count(section, "count", "experts"), section.flag("uneven", uneven_)};
}

std::optional<std::uint64_t> RuleParser::parse_count(const JsonObject& section,
                                                     std::string_view field,
                                                     std::string_view quantity) const {
  if (!section.has(field)) return quantities_.find(quantity);
  const std::uint64_t count = parse_units(section, field);
  if (count == per_element) section.fail(field, "\"elements\" has no meaning here");
  return count;
}

int RuleParser::parse_dim(const JsonObject& entry) {
  const json* value = entry.find("dim");
  if (value == nullptr) entry.fail("dim", "missing");
  if (!value->is_number_integer()) entry.fail("dim", "not an integer");
  if (!is_dim(*value)) entry.fail("dim", "the dimension is out of range");
  return value->get<int>();
}

std::vector<std::uint64_t> RuleParser::parse_sizes(const JsonObject& entry,
                                                   std::string_view field) const {
  const json* list = entry.find(field);
  if (list == nullptr || !list->is_array()) entry.fail(field, "not a list of sizes");
  std::vector<std::uint64_t> sizes;
  std::uint64_t total = 0;
  for (const json& value : *list) {
    sizes.push_back(resolve(value, entry.path(field), entry.document()));
    if (sizes.back() == per_element) entry.fail(field, "\"elements\" has no meaning here");
    add_size(sizes.back(), total, entry, field);
  }
  return sizes;
}

std::vector<std::size_t> RuleParser::parse_layers(const JsonObject& where) const {
  if (where.value().size() != 1) where.fail("", "not the name of a list and a value");
  const auto item = where.value().items().begin();
  const json* list = quantities_.list(item.key());
  std::vector<std::size_t> layers;
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    if ((*list)[i] == item.value()) layers.push_back(i);
  }
  return layers;
}

Rule RuleParser::parse_entry(const JsonObject& entry) const {
  if (entry.flag("optional", false)) {
    if (auto reason = unknown_count(entry)) return Refusal{std::move(*reason)};
  }
  return parse_known(entry);
}

/// Why a count of an entry, or of its parts, has no value; none if all have one.
std::optional<ErrorRecord> RuleParser::unknown_count(const JsonObject& entry) const {
  for (const char* field : {"units", "groups", "size", "uncut"}) {
    const json* value = entry.find(field);
    if (value == nullptr) continue;
    const std::string names = unknown_names(*value);
    if (!names.empty()) return unknown_error(names, entry.path(field), entry.document());
  }
  const json* parts = entry.find("parts");
  if (parts == nullptr || !parts->is_array()) return std::nullopt;
  for (const json& part : *parts) {
    if (!part.is_object()) continue;
    if (auto reason = unknown_count({part, entry.path("parts"), entry.document()})) return reason;
  }
  return std::nullopt;
}

/// The names in a count if config.json has none of them, and there is no number; else empty.
std::string RuleParser::unknown_names(const json& value) const {
  std::string unknown;
  for (const json& choice : value.is_array() ? value : json::array({value})) {
    if (!choice.is_string() || choice == "elements") return {};
    const auto& name = choice.get_ref<const std::string&>();
    if (product(name)) return {};
    unknown += (unknown.empty() ? "'" : ", '") + name + "'";
  }
  return unknown;
}

Rule RuleParser::parse_known(const JsonObject& entry) const {
  if (entry.has("place")) return parse_place(entry);
  entry.allow_only({"match", "where", "optional", "style", "dim", "units", "groups",
                    "replicate_units", "uneven", "parts", "covering", "uncut"});
  if (entry.has("style") == entry.has("dim")) {
    entry.fail("style", R"(a rule has exactly one of "style", "dim" and "place")");
  }
  if (entry.has("style") && style_of(entry).deals_experts) return parse_deal(entry);
  return make_rule(parse_cut(entry));
}

DealRule RuleParser::parse_deal(const JsonObject& entry) const {
  entry.allow_only({"match", "optional", "style", "uneven"});
  return {quantities_.find("experts"), entry.flag("uneven", uneven_)};
}

CutRule RuleParser::parse_cut(const JsonObject& entry) const {
  const bool uneven = entry.flag("uneven", uneven_);
  CutRule cut;
  if (entry.has("style")) {
    cut = cut_by_style(style_of(entry), uneven);
    if (!cut.weight && !cut.bias) entry.allow_only({"match", "optional", "style"});
  } else {
    cut.weight = cut.bias = parse_dim(entry);
    cut.strict = true;
    cut.sharing.units = per_element;
  }
  cut.covering = entry.flag("covering", false);
  if (entry.has("uncut")) cut.uncut = parse_units(entry, "uncut");
  if (entry.has("parts")) cut.parts = parse_parts(entry, uneven);
  cut.sharing = parse_sharing(entry, uneven);
  // Without units of its own, a fused tensor is one unit that all ranks share, part by part.
  if (!cut.parts.empty() && !entry.has("units")) cut.sharing = {.units = 1, .replicate = true};
  if (entry.has("groups")) parse_groups(entry, cut);
  return cut;
}

// Ranks get whole groups, or share one, each an equal part of its units.
void RuleParser::parse_groups(const JsonObject& entry, CutRule& cut) const {
  for (const char* other : {"parts", "replicate_units"}) {
    if (entry.has(other)) entry.fail(other, R"(has no meaning beside "groups")");
  }
  if (!entry.has("units")) entry.fail("groups", R"(needs "units")");
  const std::uint64_t units = cut.sharing.units;
  const std::uint64_t groups = parse_units(entry, "groups");
  if (units == per_element || groups == per_element || units % groups != 0) {
    entry.fail("groups", std::to_string(units) + " units are not a multiple of " +
                             std::to_string(groups) + " groups");
  }
  cut.sharing.units = groups;
  cut.sharing.replicate = true;
  cut.parts = {{units / groups, {.units = units / groups, .uneven = cut.sharing.uneven}}};
}

Sharing RuleParser::parse_sharing(const JsonObject& entry, bool uneven) const {
  const bool replicate = entry.flag("replicate_units", false);
  if (!entry.has("units")) {
    if (replicate) entry.fail("replicate_units", R"(needs "units")");
    return {.units = per_element, .uneven = uneven};
  }
  return {.units = parse_units(entry, "units"), .uneven = uneven, .replicate = replicate};
}

std::vector<PartRule> RuleParser::parse_parts(const JsonObject& entry, bool uneven) const {
  const json& list = *entry.find("parts");
  if (!list.is_array() || list.empty()) entry.fail("parts", "not a list of parts");
  std::vector<PartRule> parts;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string path = entry.path("parts[" + std::to_string(i) + "]");
    parts.push_back(parse_part(list[i], path, entry.document(), uneven));
    add_size(parts.back().size, total, entry, "parts");
  }
  return parts;
}

PartRule RuleParser::parse_part(const json& value, const std::string& path,
                                const Document& document, bool uneven) const {
  if (!value.is_object()) {
    const std::uint64_t size = resolve(value, path, document);
    return {size == per_element ? 1 : size, {per_element, uneven}};
  }
  const JsonObject part(value, path, document);
  part.allow_only({"units", "size", "replicate_units", "uneven"});
  const Sharing sharing = parse_sharing(part, part.flag("uneven", uneven));
  std::uint64_t size = part.has("size") ? parse_units(part, "size") : sharing.units;
  if (size == per_element) size = 1;
  return {size, sharing};
}

std::uint64_t RuleParser::parse_units(const JsonObject& entry, std::string_view field) const {
  return resolve(*entry.find(field), entry.path(field), entry.document());
}

// A number, a quantity, a product of quantities, or a list of these, of which the first known one
// is used.
std::uint64_t RuleParser::resolve(const json& value, const std::string& path,
                                  const Document& document) const {
  const json choices = value.is_array() ? value : json::array({value});
  for (const json& choice : choices) {
    if (choice == "elements") return per_element;
    if (choice.is_number_unsigned() && choice != 0) return choice.get<std::uint64_t>();
    if (!choice.is_string()) fail_config(document, path, "not a positive integer or a name");
    if (const auto number = product(choice.get_ref<const std::string&>())) return *number;
  }
  throw ConfigError(unknown_error(unknown_names(value), path, document));
}

// Of numbers and names with `*` between them.
std::optional<std::uint64_t> RuleParser::product(std::string_view factors) const {
  const std::size_t times = factors.find(" * ");
  const std::string_view first = factors.substr(0, times);
  const auto number = leading_number(first);
  const auto value = number ? number : quantities_.find(first);
  if (!value || times == std::string_view::npos) return value;
  const auto others = product(factors.substr(times + 3));
  return others ? core::checked_mul(*value, *others) : std::nullopt;
}

}  // namespace safeshuffle::placement
