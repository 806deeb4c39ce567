#include "placement/unmatched.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/text.hpp"
#include "placement/matcher.hpp"

namespace safeshuffle::placement {
namespace {

constexpr std::size_t most_named = 5;
constexpr std::size_t longest_shown = 100;

/// Whether a key of the section `experts` need not match: if another does, since rules may be for
/// several families, each of which has one.
bool may_lack_experts(const RuleSet& rules, const std::vector<bool>& covering) {
  if (!rules.deals_experts) return true;
  for (std::size_t i = 0; i < rules.keys.size(); ++i) {
    if (rules.keys[i].in_experts && covering[i]) return true;
  }
  return false;
}

/// Whether what the files store of a fused parameter is there.
bool is_stored(const RuleSet& rules, const Key& fused, const std::vector<bool>& covering) {
  for (std::size_t i = 0; i < rules.keys.size(); ++i) {
    if (covering[i] && rules.keys[i].fused == fused.name) return true;
  }
  return false;
}

std::vector<const Key*> unmatched_keys(const RuleSet& rules, const std::vector<bool>& covering) {
  std::vector<const Key*> unmatched;
  const bool lacks_experts = may_lack_experts(rules, covering);
  for (std::size_t i = 0; i < rules.keys.size(); ++i) {
    const Key& key = rules.keys[i];
    const bool may_be_absent = key.optional || (key.in_experts && lacks_experts);
    if (!covering[i] && !may_be_absent && !is_stored(rules, key, covering)) {
      unmatched.push_back(&key);
    }
  }
  return unmatched;
}

/// Plans are written for a class of models, and each checkpoint lacks some of what they name: one
/// of which anything matches is no mistake. Built-in rules are chosen by the type alone.
bool fits(const RuleSet& rules, const std::vector<bool>& covering) {
  if (rules.built_in) return false;
  for (std::size_t i = 0; i < rules.keys.size(); ++i) {
    if (covering[i] && rules.keys[i].in_plan) return true;
  }
  return false;
}

std::string in_quotes(const std::string& name) {
  return '"' + core::shortened(name, longest_shown) + '"';
}

/// "a" of one key; any of 7 keys: "a", "b", ...
std::string describe_keys(const std::vector<const Key*>& keys) {
  if (keys.size() == 1) return in_quotes(keys.front()->name);
  std::string text = "any of " + std::to_string(keys.size()) + " keys: ";
  for (std::size_t i = 0; i < std::min(keys.size(), most_named); ++i) {
    text += (i == 0 ? "" : ", ") + in_quotes(keys[i]->name);
  }
  return text + (keys.size() > most_named ? ", ..." : "");
}

/// A tensor of the checkpoint whose name begins like the key, as far as any does.
std::string existing_name(const RuleSet& rules, const Catalog& catalog, const Key& key) {
  if (catalog.tensors().empty()) return {};
  const auto generic_name = [&](std::string_view name) {
    return generic(rules.matcher.without_prefix(name));
  };
  const std::string wanted = generic_name(key.name);
  const auto in_common = [&](const TensorInfo& tensor) {
    const std::string name = generic_name(tensor.name);
    return std::ranges::mismatch(name, wanted).in1 - name.begin();
  };
  const auto nearest = std::ranges::max_element(catalog.tensors(), {}, in_common);
  return "; it has names such as " + in_quotes(nearest->name);
}

std::string advice(const RuleSet& rules) {
  return rules.built_in
             ? "; the model_type in config.json selected these rules; if they do not fit this "
               "model, pass a rule file, or \"replicate\", as tp_plan (--tp-plan)"
             : "; correct or remove it, or mark it as optional (docs/placement.md)";
}

}  // namespace

void check_keys(const RuleSet& rules, const Catalog& catalog, const std::vector<bool>& covering) {
  std::vector<const Key*> unmatched = unmatched_keys(rules, covering);
  if (fits(rules, covering)) std::erase_if(unmatched, [](const Key* key) { return key->in_plan; });
  if (!unmatched.empty()) fail_keys(rules, catalog, unmatched);
}

bool lacks_required(const RuleSet& rules, const std::vector<bool>& covering) {
  return !unmatched_keys(rules, covering).empty();
}

std::string unmatched_warning(const RuleSet& rules, const std::vector<bool>& covering) {
  std::vector<const Key*> unmatched = unmatched_keys(rules, covering);
  std::erase_if(unmatched, [](const Key* key) { return !key->in_plan; });
  if (unmatched.empty()) return {};
  return rules.document.name + ": no tensor of the checkpoint matches " + describe_keys(unmatched);
}

void fail_keys(const RuleSet& rules, const Catalog& catalog,
               const std::vector<const Key*>& unmatched) {
  const Key& first = *unmatched.front();
  fail_config(rules.document, first.path,
              "no tensor of the checkpoint matches " + describe_keys(unmatched) +
                  existing_name(rules, catalog, first) + advice(rules));
}

}  // namespace safeshuffle::placement
