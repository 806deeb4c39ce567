// How the tensors of quantised linear layers lie: which axis of the layer's weight, out × in, each
// axis of a stored tensor counts, and how many of the layer's elements each of its elements holds.
//
// Layouts as written by AutoGPTQ and GPTQModel, AutoAWQ, compressed-tensors, ModelOpt, and
// DeepSeek's FP8, and as cut by vLLM 0.32 (model_executor/layers/quantization).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "safeshuffle/metadata.hpp"
#include "safeshuffle/placement.hpp"

#include "placement/quantities.hpp"

namespace safeshuffle::placement {

/// What `quantization_config` of config.json says; defaults where it does not.
struct Quantisation {
  bool is_given = false;  ///< there is such a section
  std::string method;
  /// `weight_block_size` or `block_structure`, out × in; 0: not in blocks
  std::array<std::uint64_t, 2> block{};
  std::uint64_t bits = 0;     ///< 0: not given
  bool permuted = false;      ///< `desc_act`: inputs belong to groups in any order
  bool order_varies = false;  ///< some layers have a `desc_act` of their own
};

Quantisation parse_quantisation(const Quantities& quantities);

/// The values of `quant_method` whose layers are understood.
std::vector<std::string_view> quantisation_methods();

/// Whether a tensor of this name is what some method of quantisation stores of a layer.
bool has_quantised_name(const TensorInfo& tensor);

/// An axis of a stored tensor.
struct StoredAxis {
  std::optional<std::uint32_t> of_layer;  ///< 0: out, 1: in; none: whole, however the layer is cut
  std::uint64_t values = 1;               ///< so many of the layer's elements
  std::uint64_t stored = 1;               ///< are in so many of the axis
};

/// A stored tensor of a quantised layer.
struct StoredForm {
  Shape layer;  ///< out × in, in the smallest steps that any of the layer's tensors has
  std::vector<StoredAxis> axes;
};

/// The quantised layers of a checkpoint. Immutable; views names of the catalog, which must outlive
/// it.
class QuantisedLayers {
 public:
  QuantisedLayers() = default;
  QuantisedLayers(const Catalog& catalog, Quantisation quantisation);

  /// Whether the tensor is one of a quantised layer, other than its bias.
  bool has(const TensorInfo& tensor) const;

  /// How many rows in sequence must stay together in a tensor of stacked MXFP4 experts, [experts,
  /// 2 × intermediate, …] with gate and up in turns: those of a block of their down projection. 1
  /// for other tensors.
  std::uint64_t rows_together(const TensorInfo& tensor) const;

  /// Precondition: `has(tensor)`. Throws PlanError, naming the tensor, if it is of no known form,
  /// or not of the form that config.json says.
  StoredForm form_of(const TensorInfo& tensor) const;

 private:
  struct Layer {
    std::array<std::uint64_t, 2> extents{};  ///< out, in: the longest axis that counts it
    bool has_order = false;                  ///< groups of inputs are listed, not consecutive
    bool may_have_order = false;             ///< they are listed, and may be consecutive
    bool has_words = false;                  ///< there is a `qweight`
  };

  StoredAxis axis_of(const TensorInfo& tensor, std::size_t axis, std::uint32_t of_layer,
                     const Layer& layer) const;
  void check_method(const TensorInfo& tensor) const;
  void check_order(const TensorInfo& tensor) const;

  Quantisation quantisation_;
  std::map<std::string_view, Layer> layers_;
  std::set<std::string_view> mxfp4_;  ///< modules with such experts
};

}  // namespace safeshuffle::placement
