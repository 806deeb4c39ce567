// One entry of `rules`, or one style of a `tp_plan`, as a Rule; its key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "placement/json_object.hpp"
#include "placement/quantities.hpp"
#include "placement/rule.hpp"

namespace safeshuffle::placement {

/// Which tensors a rule applies to.
struct Key {
  std::string name;         ///< as in the file, such as "layers.*.mlp.up_proj"
  std::string path;         ///< where in the file, such as "rules[2].match"
  bool optional = false;    ///< whether the checkpoint may have no such tensor
  bool in_experts = false;  ///< of the section `experts`
  bool in_plan = false;     ///< of a plan in Hugging Face's vocabulary

  /// The key of the plan that this one is derived from (fused_keys.hpp); empty: it is in the file.
  std::string fused = {};
};

/// Throws ConfigError if the key is empty or has too many components.
void check_key(const Key& key, const Document& document);

/// `uneven` applies if an entry does not specify it. All functions throw ConfigError.
class RuleParser {
 public:
  RuleParser(const Quantities& quantities, bool uneven)
      : quantities_(quantities), uneven_(uneven) {}

  Rule parse_entry(const JsonObject& entry) const;

  /// The layers for which the list that `where` names in config.json has its value.
  std::vector<std::size_t> parse_layers(const JsonObject& where) const;

  Rule parse_word(const Style& style) const;

  /// Likewise, for stacked experts, whichever way they are stored.
  Rule parse_stack(const Style& style) const;

  /// Likewise, with as many units as there are heads: `quantity` names their count.
  Rule parse_heads(const Style& style, std::string_view quantity, const std::string& path,
                   const Document& document) const;

  /// The section `experts`, except its keys.
  DealRule parse_experts(const JsonObject& section) const;

  /// The count in a field; if the field is absent, the quantity, or none if that is unknown.
  std::optional<std::uint64_t> parse_count(const JsonObject& section, std::string_view field,
                                           std::string_view quantity) const;

  /// The dimension in the field `dim`; negative counts from the last.
  static int parse_dim(const JsonObject& entry);

  /// The counts in a field, a list; their sum does not overflow.
  std::vector<std::uint64_t> parse_sizes(const JsonObject& entry, std::string_view field) const;

 private:
  Rule parse_known(const JsonObject& entry) const;
  std::optional<ErrorRecord> unknown_count(const JsonObject& entry) const;
  std::string unknown_names(const nlohmann::json& value) const;
  DealRule parse_deal(const JsonObject& entry) const;
  CutRule parse_cut(const JsonObject& entry) const;
  void parse_groups(const JsonObject& entry, CutRule& cut) const;
  Sharing parse_sharing(const JsonObject& entry, bool uneven) const;
  std::vector<PartRule> parse_parts(const JsonObject& entry, bool uneven) const;
  PartRule parse_part(const nlohmann::json& value, const std::string& path,
                      const Document& document, bool uneven) const;
  std::uint64_t parse_units(const JsonObject& entry, std::string_view field) const;
  std::uint64_t resolve(const nlohmann::json& value, const std::string& path,
                        const Document& document) const;
  std::optional<std::uint64_t> product(std::string_view factors) const;

  const Quantities& quantities_;
  bool uneven_;
};

}  // namespace safeshuffle::placement
