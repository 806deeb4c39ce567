// The numbers that rules name: fields of config.json and a few derived from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "placement/document.hpp"

namespace safeshuffle::placement {

/// The counts of one config.json. A field is looked up at the top level, then where multimodal
/// models keep those of their language model: in `text_config`, `llm_config`, `language_config` or
/// `thinker_config`, which may have a `text_config` in turn. These may lack what transformers has
/// as the default of their type (configs/defaults.json), since it does not save it. Immutable.
class Quantities {
 public:
  /// `config_json` may be empty: then nothing is known. Throws ConfigError.
  explicit Quantities(std::string_view config_json);

  /// The counts of one layer, where they differ between layers: `X_per_layer[layer]` is its `X`,
  /// and so is `per_layer_config["layer"].X`.
  Quantities at_layer(std::size_t layer) const;

  /// `model_type`, at the top level or else of the language model; empty if absent.
  std::string model_type() const;

  /// Every `model_type`, from the top level inwards.
  std::vector<std::string> model_types() const;

  /// A derived quantity (`query_heads`, `kv_heads`, `group`, `layers`, `experts`, `mxfp4_blocks`)
  /// or else the field of that name; none if config.json does not have it. Throws ConfigError if it
  /// is not a positive integer.
  std::optional<std::uint64_t> find(std::string_view name) const;

  /// Whether `kv_heads` is of a field of its own; otherwise it is as many as `query_heads`.
  bool counts_kv_heads() const;

  /// `tie_word_embeddings`: whether the output head is the embedding; none if config.json does not
  /// say. Throws ConfigError.
  std::optional<bool> tied() const;

  /// A field that is true or false; none if config.json does not have it. Throws ConfigError.
  std::optional<bool> flag(std::string_view name) const;

  /// A field that is an object, as long as this lives; null if config.json does not have it.
  const nlohmann::json* section(std::string_view name) const;

  /// Likewise a field that is a list, such as `layer_types`.
  const nlohmann::json* list(std::string_view name) const;

 private:
  const nlohmann::json* field(std::string_view name) const;
  std::optional<std::uint64_t> count(std::string_view name) const;
  std::optional<std::uint64_t> default_count(std::string_view name) const;
  std::optional<std::uint64_t> first_of(std::initializer_list<std::string_view> names) const;
  std::optional<std::uint64_t> kv_heads() const;
  std::optional<std::uint64_t> falcon_kv_heads() const;
  std::optional<std::uint64_t> group() const;

  Document document_;
  std::shared_ptr<const nlohmann::json> config_;
};

}  // namespace safeshuffle::placement
