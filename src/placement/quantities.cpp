#include "placement/quantities.hpp"

#include <vector>

#include <nlohmann/json.hpp>

#include "core/embedded.hpp"

namespace safeshuffle::placement {
namespace {

using nlohmann::json;

constexpr std::uint64_t mxfp4_block = 32;

const json* member(const json& object, std::string_view name) {
  const auto found = object.find(std::string(name));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// By model type, what transformers 5.24 takes where a config does not give a number.
const json& defaults() {
  static const json all = json::parse(core::embedded_defaults().front().text);
  return all;
}

/// The configs of the language models that a multimodal model's config.json has inside.
std::vector<const json*> inner_configs(const json& config) {
  std::vector<const json*> inner;
  for (const char* field : {"text_config", "llm_config", "language_config", "thinker_config"}) {
    const json* value = member(config, field);
    if (value == nullptr || !value->is_object()) continue;
    inner.push_back(value);
    for (const json* deeper : inner_configs(*value)) inner.push_back(deeper);
  }
  return inner;
}

}  // namespace

Quantities::Quantities(std::string_view config_json)
    : document_{"config.json", std::string(config_json)} {
  json config = config_json.empty() ? json::object() : parse_strict(document_);
  if (!config.is_object()) fail_config(document_, "", "not a JSON object");
  config_ = std::make_shared<const json>(std::move(config));
}

Quantities Quantities::at_layer(std::size_t layer) const {
  constexpr std::string_view suffix = "_per_layer";
  json config = *config_;
  const auto add_lists = [&](const json& fields) {
    for (const auto& [name, list] : fields.items()) {
      if (!name.ends_with(suffix) || !list.is_array() || layer >= list.size()) continue;
      config[name.substr(0, name.size() - suffix.size())] = list[layer];
    }
  };
  add_lists(*config_);
  for (const json* inner : inner_configs(*config_)) add_lists(*inner);
  if (const json* layers = section("per_layer_config")) {
    const json* own = member(*layers, std::to_string(layer));
    if (own != nullptr && own->is_object()) config.update(*own);
  }
  Quantities quantities = *this;
  quantities.config_ = std::make_shared<const json>(std::move(config));
  return quantities;
}

std::string Quantities::model_type() const {
  const std::vector<std::string> types = model_types();
  return types.empty() ? std::string() : types.front();
}

std::vector<std::string> Quantities::model_types() const {
  std::vector<std::string> types;
  const auto add = [&](const json& config) {
    const json* type = member(config, "model_type");
    if (type == nullptr) return;
    if (!type->is_string()) fail_config(document_, "model_type", "not a string");
    types.push_back(type->get<std::string>());
  };
  add(*config_);
  for (const json* config : inner_configs(*config_)) add(*config);
  return types;
}

std::optional<std::uint64_t> Quantities::find(std::string_view name) const {
  if (name == "query_heads") return first_of({"num_attention_heads", "n_head", "num_heads"});
  if (name == "kv_heads") return kv_heads();
  if (name == "group") return group();
  if (name == "layers") return first_of({"num_hidden_layers", "n_layer", "num_layers"});
  if (name == "experts") {
    return first_of({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"});
  }
  if (name == "mxfp4_blocks") {
    const auto size = first_of({"intermediate_size"});
    return size && *size % mxfp4_block == 0 ? std::optional(*size / mxfp4_block) : std::nullopt;
  }
  return first_of({name});
}

const json* Quantities::field(std::string_view name) const {
  if (const json* value = member(*config_, name)) return value;
  for (const json* inner : inner_configs(*config_)) {
    if (const json* value = member(*inner, name)) return value;
  }
  return nullptr;
}

std::optional<std::uint64_t> Quantities::count(std::string_view name) const {
  const json* value = field(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned() || *value == 0) {
    fail_config(document_, std::string(name), "not a positive integer");
  }
  return value->get<std::uint64_t>();
}

std::optional<std::uint64_t> Quantities::first_of(
    std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    if (const auto value = count(name)) return value;
  }
  for (const std::string_view name : names) {
    if (const auto value = default_count(name)) return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Quantities::default_count(std::string_view name) const {
  for (const json* inner : inner_configs(*config_)) {
    if (inner->contains(name)) return std::nullopt;
    const json* type = member(*inner, "model_type");
    const json* numbers = type != nullptr && type->is_string()
                              ? member(defaults(), type->get_ref<const std::string&>())
                              : nullptr;
    const json* number = numbers == nullptr ? nullptr : member(*numbers, name);
    if (number != nullptr) return number->get<std::uint64_t>();
  }
  return std::nullopt;
}

std::optional<bool> Quantities::tied() const {
  return flag("tie_word_embeddings");
}

std::optional<bool> Quantities::flag(std::string_view name) const {
  const json* value = field(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail_config(document_, std::string(name), "not true or false");
  return value->get<bool>();
}

const json* Quantities::section(std::string_view name) const {
  const json* value = field(name);
  return value != nullptr && value->is_object() ? value : nullptr;
}

const json* Quantities::list(std::string_view name) const {
  const json* value = field(name);
  return value != nullptr && value->is_array() ? value : nullptr;
}

std::optional<std::uint64_t> Quantities::kv_heads() const {
  const std::string type = model_type();
  if (type == "falcon" || type == "RefinedWeb" || type == "RefinedWebModel" ||
      type == "gpt_bigcode") {
    return falcon_kv_heads();
  }
  if (const auto heads = first_of({"num_key_value_heads", "num_kv_heads"})) return heads;
  return find("query_heads");
}

bool Quantities::counts_kv_heads() const {
  const auto has = [this](std::string_view name) {
    return field(name) != nullptr || default_count(name).has_value();  // which may be a list
  };
  return has("num_key_value_heads") || has("num_kv_heads");
}

// Falcon's first generation ignores num_kv_heads: it has either one KV head or one per query head.
// RefinedWeb is the second generation's type from before the flag existed.
std::optional<std::uint64_t> Quantities::falcon_kv_heads() const {
  if (flag("new_decoder_architecture").value_or(model_type() == "RefinedWeb")) {
    if (const auto heads = first_of({"num_kv_heads", "n_head_kv"})) return heads;
  } else if (flag("multi_query").value_or(true)) {
    return 1;
  }
  return find("query_heads");
}

std::optional<std::uint64_t> Quantities::group() const {
  const auto query = find("query_heads");
  const auto kv = kv_heads();
  if (!query || !kv) return std::nullopt;
  if (*query % *kv != 0) {
    fail_config(document_, "",
                std::to_string(*query) + " query heads are not a multiple of " +
                    std::to_string(*kv) + " KV heads");
  }
  return *query / *kv;
}

}  // namespace safeshuffle::placement
