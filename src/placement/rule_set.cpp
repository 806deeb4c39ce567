#include "placement/rule_set.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <variant>

#include <nlohmann/json.hpp>

#include "placement/built_in.hpp"
#include "placement/fused_keys.hpp"
#include "placement/json_object.hpp"
#include "placement/rule_parser.hpp"

namespace safeshuffle::placement {
namespace {

using nlohmann::json;

// Hugging Face writes plans for a class of models, and each checkpoint omits the tensors it ties.
constexpr const char* output_head = "lm_head";

const std::vector<std::string>& default_prefixes() {
  static const std::vector<std::string> prefixes{"model",
                                                 "transformer",
                                                 "gpt_neox",
                                                 "backbone",
                                                 "language_model",
                                                 "language_model.model",
                                                 "model.language_model",
                                                 "model.text_model",
                                                 "language_model.backbone",
                                                 "language.model",
                                                 "llm",
                                                 "llm.model",
                                                 "thinker",
                                                 "thinker.model"};
  return prefixes;
}

std::vector<std::string> parse_prefixes(const JsonObject& file) {
  return file.has("base_model_prefix") ? file.strings("base_model_prefix") : default_prefixes();
}

bool parse_strictness(const JsonObject& file) {
  if (!file.has("on_unmatched")) return false;
  const std::string word = file.text("on_unmatched");
  if (word != "replicate" && word != "error") {
    file.fail("on_unmatched", R"(not "replicate" or "error")");
  }
  return word == "error";
}

/// The keys of `tp_plan` that are marked as optional.
std::vector<std::string> parse_optional(const JsonObject& file) {
  std::vector<std::string> keys = file.strings("optional");
  const json* plan = file.find("tp_plan");
  for (const std::string& key : keys) {
    if (plan != nullptr && plan->is_object() && plan->contains(key)) continue;
    file.fail("optional", "'" + key + "' is not a key of \"tp_plan\"");
  }
  return keys;
}

/// Fields of a rule file, except `tp_plan` and `rules`, by which a rule file is recognised.
constexpr std::array<std::string_view, 9> other_fields{
    "optional", "on_unmatched", "uneven", "base_model_prefix", "extends", "model_types",
    "experts",  "pipeline",     "compose"};

/// The quantity that counts the heads of an attention projection, by its key; empty: it is none.
std::string_view heads_of(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  const bool of_attention = dot != std::string_view::npos && key.substr(0, dot).ends_with("attn");
  const std::string_view name = key.substr(dot + 1);
  if (!of_attention) return {};
  if (name == "k_proj" || name == "v_proj") return "kv_heads";
  const std::array<std::string_view, 4> query{"q_proj", "o_proj", "q_b_proj", "kv_b_proj"};
  return std::ranges::count(query, name) != 0 ? "query_heads" : std::string_view();
}

/// Whether a key of a plan is of stacked experts, which some files have transposed.
bool is_stack(std::string_view key) {
  return key.ends_with("experts.gate_up_proj") || key.ends_with("experts.down_proj");
}

/// In a plan, every name is a key, so a field would be mistaken for one.
void refuse_fields_among_keys(const JsonObject& plan, const std::string& cause) {
  for (const auto& item : plan.value().items()) {
    if (std::ranges::count(other_fields, item.key()) != 0) plan.fail(item.key(), cause);
  }
}

/// A key that goes as far as the experts' numbers would take each expert for a stack of experts.
void refuse_single_expert(const Key& key, const Document& document) {
  const std::string name = "." + generic(key.name) + ".";
  if (!name.ends_with(".*.") && name.find(".experts.*.") == std::string::npos) return;
  fail_config(document, key.path,
              "\"" + key.name +
                  "\" stands for single experts; name the module that contains them, "
                  "such as \"layers.*.mlp.experts\"");
}

/// Fills a RuleSet. Rules are added before plans, because they take precedence over equal keys.
class Builder {
 public:
  Builder(const Quantities& quantities, bool uneven, std::vector<std::string> prefixes,
          const Document& document)
      : quantities_(quantities),
        uneven_(uneven),
        parser_(quantities, uneven),
        prefixes_(std::move(prefixes)),
        document_(document) {
    set_.matcher = set_.experts = Matcher(prefixes_);
  }

  void add_rules(const json& list) {
    if (!list.is_array()) fail_config(document_, "rules", "not a list");
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonObject entry(list[i], "rules[" + std::to_string(i) + "]", document_);
      add_entry(entry);
    }
    rule_count_ = set_.rules.size();
  }

  void add_plan(const JsonObject& plan, const std::vector<std::string>& optional) {
    for (const auto& item : plan.value().items()) {
      const std::string path = plan.path(item.key());
      const Style& style = parse_style(plan.text(item.key()), path, document_);
      const bool may_be_absent =
          style.for_activations || std::count(optional.begin(), optional.end(), item.key()) != 0;
      add(set_.matcher,
          {.name = item.key(), .path = path, .optional = may_be_absent, .in_plan = true},
          parse_key(item.key(), style, path));
    }
    for (const auto& item : plan.value().items()) add_stored(item.key(), plan);
  }

  void add_experts(const JsonObject& section) {
    const DealRule rule = parser_.parse_experts(section);
    const std::vector<std::string> keys = section.strings("match");
    if (keys.empty()) section.fail("match", "missing");
    for (const std::string& key : keys) {
      add(set_.experts, {.name = key, .path = section.path("match"), .in_experts = true}, rule);
    }
  }

  void add_pipeline(const JsonObject& section) {
    set_.pipeline = parse_pipeline(section, parser_, quantities_, prefixes_);
  }

  void add_compose(const json& list) {
    set_.compose = parse_compose(list, parser_, quantities_, document_);
  }

  /// For names that these rules have no key for.
  void extend(RuleSet base) {
    const bool has_experts = std::ranges::any_of(set_.keys, &Key::in_experts);
    for (std::size_t i = 0; i < base.rules.size(); ++i) {
      Key& key = base.keys[i];
      if (key.in_experts && has_experts) continue;
      Matcher& matcher = key.in_experts ? set_.experts : set_.matcher;
      if (matcher.add(key.name, set_.rules.size()) != set_.rules.size()) continue;
      key.optional = true;
      key.path = "extends";
      set_.keys.push_back(std::move(key));
      set_.rules.push_back(std::move(base.rules[i]));
    }
    if (!set_.pipeline) set_.pipeline = std::move(base.pipeline);
    set_.extended = base.extended + 1;
  }

  RuleSet finish(Form form, bool strict) {
    set_.form = form;
    set_.strict = strict;
    return std::move(set_);
  }

 private:
  void add_entry(const JsonObject& entry) {
    if (!entry.has("where")) return add_rule(entry, parser_.parse_entry(entry), {});
    const JsonObject where(*entry.find("where"), entry.path("where"), document_);
    const std::vector<std::size_t> layers = parser_.parse_layers(where);
    if (layers.empty() && !entry.flag("optional", false)) {
      entry.fail("where", "config.json has no such layer");
    }
    for (const std::size_t layer : layers) {
      const Quantities of_layer = quantities_.at_layer(layer);
      add_rule(entry, RuleParser(of_layer, uneven_).parse_entry(entry), std::to_string(layer));
    }
  }

  /// `layer`: what the first `*` of a key stands for; empty: any number.
  void add_rule(const JsonObject& entry, const Rule& rule, const std::string& layer) {
    const std::vector<std::string> names = entry.strings("match");
    if (names.empty()) entry.fail("match", "missing");
    for (std::string name : names) {
      const std::size_t star = name.find('*');
      if (!layer.empty() && star != std::string::npos) name.replace(star, 1, layer);
      const bool optional = entry.flag("optional", false);
      add(set_.matcher, {.name = name, .path = entry.path("match"), .optional = optional}, rule);
    }
  }

  /// A plan does not say how many heads a projection has, which must stay whole unless the plan
  /// gathers what it gives.
  Rule parse_key(const std::string& key, const Style& style, const std::string& path) const {
    const std::string_view heads = heads_of(key);
    const bool keeps_heads = style.word == "colwise" || style.word == "rowwise";
    if (is_stack(key)) return parser_.parse_stack(style);
    if (heads.empty() || !keeps_heads) return parser_.parse_word(style);
    return parser_.parse_heads(style, heads, path, document_);
  }

  /// What the files have in place of a fused parameter, unless the plan has keys for that, too.
  void add_stored(const std::string& fused, const JsonObject& plan) {
    for (const StoredKey& stored : stored_keys(fused, plan.text(fused))) {
      const Style& style = parse_style(stored.style, plan.path(fused), document_);
      Key key{.name = stored.name,
              .path = plan.path(fused),
              .optional = true,
              .in_plan = true,
              .fused = fused};
      if (set_.matcher.add(key.name, set_.rules.size()) != set_.rules.size()) continue;
      set_.rules.push_back(parser_.parse_word(style));
      set_.keys.push_back(std::move(key));
    }
  }

  /// Of two keys of plans for the same names, the longer applies, then the later.
  void replace(std::size_t standing, Key key, Rule rule) {
    Key& other = set_.keys[standing];
    const bool wins = key.name.size() >= other.name.size();
    const auto& [kept, left] =
        wins ? std::tie(key.name, other.name) : std::tie(other.name, key.name);
    set_.notes.push_back("\"" + kept + "\" and \"" + left +
                         "\" of the plan match the same names; \"" + kept + "\" applies");
    if (!wins) return;
    other = std::move(key);
    set_.rules[standing] = std::move(rule);
  }

  void add(Matcher& matcher, Key key, Rule rule) {
    check_key(key, document_);
    if (std::holds_alternative<DealRule>(rule)) refuse_single_expert(key, document_);
    const std::size_t index = set_.rules.size();
    const std::size_t standing = matcher.add(key.name, index);
    if (standing == index) {
      set_.rules.push_back(std::move(rule));
      set_.keys.push_back(std::move(key));
    } else if (standing < rule_count_) {
      return;
    } else if (key.in_plan && set_.keys[standing].in_plan) {
      replace(standing, std::move(key), std::move(rule));
    } else {
      fail_config(document_, key.path, "another entry matches the same names");
    }
  }

  const Quantities& quantities_;
  bool uneven_;
  RuleParser parser_;
  std::vector<std::string> prefixes_;
  const Document& document_;
  RuleSet set_;
  std::size_t rule_count_ = 0;
};

RuleSet parse_rule_file(const JsonObject& file, const Quantities& quantities, bool uneven);

/// The rules of the built-in file that a file extends.
RuleSet parse_base(const JsonObject& file, const Quantities& quantities, bool uneven) {
  const std::string name = file.text("extends");
  const auto base = built_in_document(name);
  if (!base)
    file.fail("extends", "no built-in rules '" + name + "'; 'safeshuffle models' lists them");
  const json root = parse_strict(*base);
  return parse_rule_file({root, "", *base}, quantities, uneven);
}

RuleSet parse_rule_file(const JsonObject& file, const Quantities& quantities,
                        bool uneven_by_default) {
  file.allow_only({"extends", "tp_plan", "optional", "rules", "experts", "pipeline", "compose",
                   "on_unmatched", "uneven", "base_model_prefix", "model_types"});
  const bool uneven = file.flag("uneven", uneven_by_default);
  Builder builder(quantities, uneven, parse_prefixes(file), file.document());
  const std::vector<std::string> optional = parse_optional(file);
  if (const json* rules = file.find("rules")) builder.add_rules(*rules);
  if (const json* plan = file.find("tp_plan")) {
    const JsonObject keys(*plan, "tp_plan", file.document());
    refuse_fields_among_keys(keys,
                             R"(a field of a rule file; it belongs beside "tp_plan", not in it)");
    builder.add_plan(keys, optional);
  }
  if (const json* experts = file.find("experts")) {
    builder.add_experts({*experts, "experts", file.document()});
  }
  if (const json* pipeline = file.find("pipeline")) {
    builder.add_pipeline({*pipeline, "pipeline", file.document()});
  }
  if (const json* compose = file.find("compose")) builder.add_compose(*compose);
  if (file.has("extends")) builder.extend(parse_base(file, quantities, uneven));
  return builder.finish(Form::rule_file, parse_strictness(file));
}

RuleSet parse_bare_plan(const JsonObject& file, const Quantities& quantities) {
  if (file.value().empty()) fail_config(file.document(), "", R"(neither "tp_plan" nor "rules")");
  refuse_fields_among_keys(
      file, R"(a field of a rule file, but this is a bare plan, in which every name is a key; )"
            R"(write {"uneven": ..., "tp_plan": {...}} instead)");
  Builder builder(quantities, false, default_prefixes(), file.document());
  builder.add_plan(file, {output_head});
  return builder.finish(Form::bare_plan, false);
}

RuleSet parse_form(const JsonObject& file, const Quantities& quantities) {
  if (file.has("base_model_tp_plan") || file.has("model_type") || file.has("architectures")) {
    fail_config(file.document(), "",
                "this is a config.json, not a rule file; a plan can be pasted from it");
  }
  if (file.has("tp_plan") || file.has("rules") || file.has("extends"))
    return parse_rule_file(file, quantities, false);
  return parse_bare_plan(file, quantities);
}

/// Rules with `place` also apply to experts that are dealt.
bool is_placed(const RuleSet& rules, std::optional<std::size_t> index) {
  const Keep* keep = index ? std::get_if<Keep>(&rules.rules[*index]) : nullptr;
  return keep != nullptr && keep->by_place;
}

std::string how_to_add(const std::string& section) {
  return "pass a rule file with, for example, " + section +
         " as tp_plan (--tp-plan); 'safeshuffle rules MODEL' prints the rules that apply";
}

}  // namespace

std::optional<std::size_t> find_rule(const RuleSet& rules, std::string_view name,
                                     std::vector<bool>& covering) {
  const auto usual = rules.matcher.find(name, covering);
  if (!rules.deals_experts) return usual;
  const auto expert = rules.experts.find(name, covering);
  return expert && !is_placed(rules, usual) ? expert : usual;
}

RuleSet with_dealt_experts(RuleSet rules) {
  const bool has_experts = std::ranges::any_of(
      rules.rules, [](const Rule& rule) { return std::holds_alternative<DealRule>(rule); });
  if (!has_experts) {
    fail_config(rules.document, "",
                "no section \"experts\", which names the modules of the experts that are to be "
                "dealt to ranks (--experts parallel); a dense model has no experts; otherwise, " +
                    how_to_add(R"("experts": {"match": "layers.*.mlp.experts"})"));
  }
  rules.deals_experts = true;
  return rules;
}

const Pipeline& pipeline_of(const RuleSet& rules) {
  if (rules.pipeline) return *rules.pipeline;
  fail_config(rules.document, "",
              "no section \"pipeline\", which names the modules of pipeline stages "
              "(--pipeline-stage); " +
                  how_to_add(R"("pipeline": {"embedding": "embed_tokens", "layers": "layers", )"
                             R"("last": "norm", "head": "lm_head"})"));
}

RuleSet parse_rules(Document document, const Quantities& quantities) {
  const json root = parse_strict(document);
  RuleSet set = parse_form({root, "", document}, quantities);
  set.document = std::move(document);
  set.assumes_kv_heads = !quantities.counts_kv_heads();
  set.quantisation = parse_quantisation(quantities);
  return set;
}

std::vector<std::string> model_types_of(const Document& document) {
  const json root = parse_strict(document);
  return JsonObject(root, "", document).strings("model_types");
}

}  // namespace safeshuffle::placement
