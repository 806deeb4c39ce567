#include "placement/rule_parser.hpp"

#include <optional>

#include <nlohmann/json.hpp>

#include "core/arithmetic.hpp"

namespace safeshuffle::placement {
namespace {

using nlohmann::json;

constexpr unsigned max_dim = 64;

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
  return {Placement::Kind::single, rank->get<std::uint32_t>()};
}

Keep parse_place(const JsonObject& entry) {
  entry.allow_only({"match", "optional", "place"});
  const json& place = *entry.find("place");
  if (place == "replicate") return {Placement::Kind::replicated};
  if (place == "drop") return {Placement::Kind::dropped};
  if (place.is_object()) return parse_rank({place, entry.path("place"), entry.document()});
  entry.fail("place", R"(not "replicate", "drop" or {"rank": k})");
}

void add_size(std::uint64_t size, std::uint64_t& total, const JsonObject& entry,
              std::string_view field) {
  const auto sum = core::checked_add(total, size);
  if (!sum) entry.fail(field, "the sizes are too large");
  total = *sum;
}

}  // namespace

Rule RuleParser::parse_word(const Style& style) const {
  if (style.deals_experts) return DealRule{quantities_.find("experts"), uneven_};
  return make_rule(cut_by_style(style, uneven_));
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

Rule RuleParser::parse_entry(const JsonObject& entry) const {
  if (entry.has("place")) return parse_place(entry);
  entry.allow_only({"match", "optional", "style", "dim", "units", "replicate_units", "uneven",
                    "parts", "covering"});
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
  if (entry.has("parts")) cut.parts = parse_parts(entry, uneven);
  cut.sharing = parse_sharing(entry, uneven);
  // Without units of its own, a fused tensor is one unit that all ranks share, part by part.
  if (!cut.parts.empty() && !entry.has("units")) cut.sharing = {.units = 1, .replicate = true};
  return cut;
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

// A number, the name of a quantity, or a list of these, of which the first known one is used.
std::uint64_t RuleParser::resolve(const json& value, const std::string& path,
                                  const Document& document) const {
  const json choices = value.is_array() ? value : json::array({value});
  std::string unknown;
  for (const json& choice : choices) {
    if (choice == "elements") return per_element;
    if (choice.is_number_unsigned() && choice != 0) return choice.get<std::uint64_t>();
    if (!choice.is_string()) fail_config(document, path, "not a positive integer or a name");
    const auto& name = choice.get_ref<const std::string&>();
    if (const auto number = quantities_.find(name)) return *number;
    unknown += (unknown.empty() ? "'" : ", '") + name + "'";
  }
  fail_config(document, path,
              "config.json does not give " + (unknown.empty() ? "a number" : unknown));
}

}  // namespace safeshuffle::placement
