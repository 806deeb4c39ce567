#include "placement/quantised.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

#include "core/arithmetic.hpp"

namespace safeshuffle::placement {
namespace {

using nlohmann::json;

constexpr std::uint32_t out = 0;
constexpr std::uint32_t in = 1;

/// A kind of tensor by the last component of its name; the axes of the layer that its axes count.
struct Stored {
  std::string_view leaf;
  std::array<std::optional<std::uint32_t>, 2> axes;
  bool by_group = false;  ///< has an element for each group of inputs
};

/// GPTQ and AWQ.
constexpr std::array transposed{
    Stored{"qweight", {in, out}},
    Stored{"qzeros", {in, out}, true},
    Stored{"scales", {in, out}, true},
    Stored{"g_idx", {in}},
};

/// compressed-tensors, ModelOpt, and FP8.
constexpr std::array upright{
    Stored{"weight", {out, in}},
    Stored{"weight_packed", {out, in}},
    Stored{"weight_scale", {out, in}, true},
    Stored{"weight_scale_inv", {out, in}, true},
    Stored{"weight_zero_point", {out, in}, true},
    Stored{"weight_g_idx", {in}},
    Stored{"weight_shape", {}},
    Stored{"weight_scale_2", {}},
    Stored{"weight_global_scale", {}},
    Stored{"input_scale", {}},
    Stored{"input_global_scale", {}},
    Stored{"input_scale_ub", {}},
};

constexpr std::array<std::string_view, 6> methods_transposed{"gptq", "awq",         "auto-round",
                                                             "inc",  "gptq_marlin", "awq_marlin"};
constexpr std::array<std::string_view, 5> methods_upright{"compressed-tensors", "fp8", "fbgemm_fp8",
                                                          "modelopt", "modelopt_fp4"};

/// Of methods that are not supported: bitsandbytes, HQQ, EETQ, AQLM, ExLlamaV2, SqueezeLLM, MLX.
constexpr std::array<std::string_view, 16> unsupported{
    "absmax",        "quant_map",     "nested_absmax", "nested_quant_map",
    "SCB",           "weight_format", "W_q",           "W_s",
    "weight_scales", "codes",         "codebooks",     "q_weight",
    "q_scale",       "q_groups",      "lookup_table",  "biases"};

constexpr std::uint64_t block_of_deepseek = 128;
constexpr std::uint64_t word_bits = 32;  // of what values are packed into

template <typename List, typename... Member>
bool contains(const List& list, std::string_view value, Member... member) {
  return std::ranges::find(list, value, member...) != list.end();
}

std::string_view leaf_of(const TensorInfo& tensor) {
  return std::string_view(tensor.name).substr(tensor.name.rfind('.') + 1);
}

std::string_view layer_of(const TensorInfo& tensor) {
  const std::size_t dot = tensor.name.rfind('.');
  return std::string_view(tensor.name).substr(0, dot == std::string::npos ? 0 : dot);
}

const Stored* kind_of(const TensorInfo& tensor) {
  const auto find = [leaf = leaf_of(tensor)](const auto& kinds) {
    const auto kind = std::ranges::find(kinds, leaf, &Stored::leaf);
    return kind == kinds.end() ? nullptr : &*kind;
  };
  const Stored* kind = find(upright);
  return kind != nullptr ? kind : find(transposed);
}

[[noreturn]] void fail_layer(const TensorInfo& tensor, std::string cause) {
  throw PlanError(ErrorRecord{.tensor = tensor.name, .cause = std::move(cause)});
}

/// 32 / bits of them in a word, or 32 in as many words as they have bits; or a group of inputs.
bool is_packed(const StoredAxis& axis) {
  return (axis.stored == 1 && std::has_single_bit(axis.values)) || axis.values == word_bits;
}

/// 0 if it is none.
std::uint64_t positive(const json& value) {
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}

std::array<std::uint64_t, 2> parse_block(const json& value) {
  if (!value.is_array() || value.size() != 2) return {};
  return {positive(value[0]), positive(value[1])};
}

/// Whether what is said of some layers says this, too.
bool gives_order(const json& layers) {
  return layers.is_object() && layers.contains("desc_act");
}

/// Of compressed-tensors, where a group of layers has one; else `otherwise`.
std::array<std::uint64_t, 2> block_of_groups(const json& groups,
                                             std::array<std::uint64_t, 2> otherwise) {
  for (const json& group : groups) {
    const json weights = group.is_object() ? group.value("weights", json()) : json();
    if (weights.is_object() && weights.contains("block_structure")) {
      return parse_block(weights["block_structure"]);
    }
  }
  return otherwise;
}

}  // namespace

Quantisation parse_quantisation(const Quantities& quantities) {
  Quantisation result;
  const json* section = quantities.section("quantization_config");
  if (section == nullptr) return result;
  result.is_given = true;
  bool bits_vary = false;
  for (const auto& [name, value] : section->items()) {
    if (name == "quant_method" && value.is_string()) result.method = value.get<std::string>();
    if (name == "bits") result.bits = positive(value);
    if (name == "desc_act") result.permuted = value == true;
    if (name == "weight_block_size") result.block = parse_block(value);
    if (name == "config_groups") result.block = block_of_groups(value, result.block);
    if ((name == "dynamic" || name == "extra_config") && !value.empty()) {
      bits_vary = true;
      result.order_varies |= std::ranges::any_of(value, gives_order);
    }
  }
  if (bits_vary) result.bits = 0;
  return result;
}

std::vector<std::string_view> quantisation_methods() {
  std::vector<std::string_view> methods(methods_transposed.begin(), methods_transposed.end());
  methods.insert(methods.end(), methods_upright.begin(), methods_upright.end());
  methods.push_back(
      "mxfp4");  // its stacked experts have keys of their own: configs/tp/gpt_oss.json
  return methods;
}

bool has_quantised_name(const TensorInfo& tensor) {
  const Stored* kind = kind_of(tensor);
  return (kind != nullptr && kind->leaf != "weight") || contains(unsupported, leaf_of(tensor));
}

QuantisedLayers::QuantisedLayers(const Catalog& catalog, Quantisation quantisation)
    : quantisation_(std::move(quantisation)) {
  for (const TensorInfo& tensor : catalog.tensors()) {
    if (leaf_of(tensor) == "down_proj_blocks") mxfp4_.insert(layer_of(tensor));
    const Stored* kind = kind_of(tensor);
    if (kind == nullptr || kind->leaf == "weight") continue;
    Layer& layer = layers_[layer_of(tensor)];
    layer.has_order |= kind->leaf == "weight_g_idx";
    layer.may_have_order |= kind->leaf == "g_idx";
    layer.has_words |= kind->leaf == "qweight";
  }
  if (layers_.empty()) return;
  for (const TensorInfo& tensor : catalog.tensors()) {
    const Stored* kind = kind_of(tensor);
    const auto layer = kind == nullptr ? layers_.end() : layers_.find(layer_of(tensor));
    if (layer == layers_.end()) continue;
    for (std::size_t i = 0; i < std::min(tensor.shape.size(), kind->axes.size()); ++i) {
      if (!kind->axes[i]) continue;
      std::uint64_t& extent = layer->second.extents[*kind->axes[i]];
      extent = std::max(extent, tensor.shape[i]);
    }
  }
}

bool QuantisedLayers::has(const TensorInfo& tensor) const {
  return kind_of(tensor) != nullptr && layers_.contains(layer_of(tensor));
}

std::uint64_t QuantisedLayers::rows_together(const TensorInfo& tensor) const {
  constexpr std::uint64_t block = 32;
  const bool is_up = leaf_of(tensor).starts_with("gate_up_proj_");
  return is_up && mxfp4_.contains(layer_of(tensor)) ? 2 * block : 1;
}

StoredForm QuantisedLayers::form_of(const TensorInfo& tensor) const {
  check_method(tensor);
  const Stored& kind = *kind_of(tensor);
  const Layer& layer = layers_.find(layer_of(tensor))->second;
  if (contains(transposed, kind.leaf, &Stored::leaf) && !layer.has_words) {
    fail_layer(tensor,
               "its layer has no \"qweight\" of GPTQ or AWQ: it is quantised by a method that is "
               "not supported");
  }
  StoredForm form{{layer.extents[out], layer.extents[in]}, {}};
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const auto of_layer = i < kind.axes.size() ? kind.axes[i] : std::nullopt;
    if (!of_layer && kind.axes[0] && tensor.shape[i] != 1) {
      fail_layer(tensor, "it has more dimensions than \"" + std::string(kind.leaf) +
                             "\" of any known quantisation method");
    }
    form.axes.push_back(of_layer ? axis_of(tensor, i, *of_layer, layer) : StoredAxis{});
  }
  return form;
}

StoredAxis QuantisedLayers::axis_of(const TensorInfo& tensor, std::size_t axis,
                                    std::uint32_t of_layer, const Layer& layer) const {
  const Stored& kind = *kind_of(tensor);
  const std::uint64_t extent = tensor.shape[axis];
  const std::uint64_t whole = layer.extents[of_layer];
  if (extent == whole) return {of_layer};
  if (kind.by_group && of_layer == in && (quantisation_.permuted || layer.has_order)) return {};
  if (kind.by_group && of_layer == in && layer.may_have_order && extent > 1) check_order(tensor);
  std::uint64_t block = kind.by_group ? quantisation_.block[of_layer] : 0;
  const bool fits_deepseek = core::ceil_div(whole, block_of_deepseek) == extent;
  if (block == 0 && kind.leaf == "weight_scale_inv" && fits_deepseek) block = block_of_deepseek;
  if (block != 0) {
    if (core::ceil_div(whole, block) == extent) return {of_layer, block};
    fail_layer(tensor, "axis " + std::to_string(axis) + " has " + std::to_string(extent) +
                           " elements, but blocks of " + std::to_string(block) +
                           " of the layer's " + std::to_string(whole) +
                           " (\"weight_block_size\" in config.json) would be " +
                           std::to_string(core::ceil_div(whole, block)));
  }
  if (extent <= 1) return {};
  const std::uint64_t common = std::gcd(whole, extent);
  const StoredAxis result{of_layer, whole / common, extent / common};
  if (!is_packed(result)) {
    fail_layer(tensor, "axis " + std::to_string(axis) + " has " + std::to_string(extent) +
                           " elements, which do not fit the " + std::to_string(whole) +
                           " of the layer's other tensors");
  }
  if (kind.leaf == "qzeros" && of_layer == out && quantisation_.bits != 0 &&
      result.values * quantisation_.bits != word_bits * result.stored) {
    fail_layer(tensor, "it has " + std::to_string(extent) + " words for " + std::to_string(whole) +
                           " outputs, but config.json says \"bits\": " +
                           std::to_string(quantisation_.bits));
  }
  return result;
}

void QuantisedLayers::check_order(const TensorInfo& tensor) const {
  if (quantisation_.is_given && !quantisation_.order_varies) return;
  fail_layer(tensor, quantisation_.is_given
                         ? "whether it is cut depends on \"desc_act\", which \"dynamic\" in the "
                           "\"quantization_config\" of config.json gives for some layers only"
                         : "whether it is cut depends on \"desc_act\", and config.json has no "
                           "\"quantization_config\"; put there what quantize_config.json has");
}

void QuantisedLayers::check_method(const TensorInfo& tensor) const {
  const std::string& method = quantisation_.method;
  const bool is_transposed = contains(transposed, leaf_of(tensor), &Stored::leaf);
  const bool knows = contains(quantisation_methods(), method);
  if (method.empty()) return;
  if (!knows) {
    fail_layer(tensor,
               "it belongs to a quantised layer, and the quantisation method of config.json, '" +
                   method +
                   "', is not supported: pass \"replicate\" as tp_plan (--tp-plan), or a rule file "
                   "with a key that ends in the tensor's own name for each kind of tensor");
  }
  if (contains(is_transposed ? std::span<const std::string_view>(methods_transposed)
                             : std::span<const std::string_view>(methods_upright),
               method)) {
    return;
  }
  fail_layer(tensor,
             "the quantisation method of config.json, '" + method +
                 "', stores no tensors of that name; the files are of another checkpoint, or "
                 "config.json is");
}

}  // namespace safeshuffle::placement
