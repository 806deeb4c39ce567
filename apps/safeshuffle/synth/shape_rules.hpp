// How the shapes of an architecture's tensors follow from its config.json.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "safeshuffle/metadata.hpp"

#include "synth/expression.hpp"

namespace safeshuffle::synth {

/// Expressions (synth/expression.hpp) over the numbers of config.json.
struct ShapeRules {
  std::vector<std::string>
      widths;  ///< keys of config.json that scaling shrinks, the main one first
  std::vector<std::pair<std::string, std::string>> dimensions;  ///< further values, by name
  std::map<std::string, std::vector<std::string>> extents;      ///< shapes, by name pattern
};

/// `name` with every component (between dots) that is a number replaced by `*`.
std::string pattern_of(std::string_view name);

/// The non-negative whole numbers of config.json, and the rules' own dimensions. Empty if a
/// dimension is not a whole number. Throws ConfigError if an expression is malformed.
std::optional<Values> values_of(const std::string& config_json, const ShapeRules& rules);

/// The shape of tensor `name`. Throws ConfigError if no rule applies or an extent is not whole.
Shape shape_of(const std::string& name, const ShapeRules& rules, const Values& values);

}  // namespace safeshuffle::synth
