#include "synth/scale.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

namespace safeshuffle::synth {
namespace {

constexpr std::uint64_t largest_world = 64;

// The least common multiple of the divisors of `extent` up to the largest world.
std::uint64_t shared_multiple(std::uint64_t extent) {
  std::uint64_t multiple = 1;
  for (std::uint64_t world = 2; world <= largest_world; ++world) {
    if (extent % world == 0) multiple = std::lcm(multiple, world);
  }
  return multiple;
}

std::string with_number(const std::string& config, const std::string& key, std::uint64_t value) {
  auto json = nlohmann::ordered_json::parse(config);
  json[key] = value;
  return json.dump(2) + "\n";
}

// What every extent of a layout must remain a multiple of.
class Divisibility {
 public:
  explicit Divisibility(const Layout& layout) : rules_(layout.rules) {
    const auto values = values_of(layout.config, rules_);
    for (const auto& [pattern, extents] : rules_.extents) {
      for (const std::string& extent : extents) {
        steps_.emplace(extent, shared_multiple(evaluate(extent, *values).value()));
      }
    }
  }

  bool holds(const std::string& config) const {
    const auto values = values_of(config, rules_);
    return values && std::all_of(steps_.begin(), steps_.end(), [&](const auto& step) {
             const auto extent = evaluate(step.first, *values);
             return extent && *extent % step.second == 0;
           });
  }

 private:
  const ShapeRules& rules_;
  std::map<std::string, std::uint64_t> steps_;  // by expression
};

// Extents are linear in each width, so its permitted values are the multiples of the least one.
std::uint64_t step_of(const Layout& layout, const Divisibility& divisibility,
                      const std::string& width, std::uint64_t original) {
  const std::uint64_t unit = shared_multiple(original);
  for (std::uint64_t step = unit; step < original; step += unit) {
    if (original % step == 0 && divisibility.holds(with_number(layout.config, width, step))) {
      return step;
    }
  }
  return original;
}

// The multiple of `step` nearest to `ideal` by ratio, within [step, original].
std::uint64_t nearest(double ideal, std::uint64_t step, std::uint64_t original) {
  const auto unit = static_cast<double>(step);
  const double below = std::max(1.0, std::floor(ideal / unit));
  const double ratio = ideal / unit;
  const double count = ratio * ratio > below * (below + 1) ? below + 1 : below;
  return std::min(static_cast<std::uint64_t>(count) * step, original);
}

// Weights are mostly products of the main width, which comes first, and another one: the others
// compensate for the rounding of the main width.
std::string scaled_config(const Layout& layout, double scale) {
  const Divisibility divisibility(layout);
  const Values values = values_of(layout.config, layout.rules).value();
  std::string config = layout.config;
  double factor = std::sqrt(scale);
  for (const std::string& width : layout.rules.widths) {
    const std::uint64_t original = values.at(width);
    const std::uint64_t step = step_of(layout, divisibility, width, original);
    const auto full = static_cast<double>(original);
    const std::uint64_t value = nearest(full * factor, step, original);
    if (width == layout.rules.widths.front()) factor = scale * full / static_cast<double>(value);
    config = with_number(config, width, value);
  }
  if (!divisibility.holds(config)) throw ConfigError("layout '" + layout.name + "' does not scale");
  return config;
}

}  // namespace

Layout scaled(const Layout& layout, double scale) {
  if (!(scale > 0 && scale <= 1)) throw ConfigError("the scale must lie in (0, 1]");
  Layout result = layout;
  if (scale == 1) return result;
  result.config = scaled_config(layout, scale);
  const Values values = values_of(result.config, result.rules).value();
  for (LayoutFile& file : result.files) {
    file.size.reset();
    for (format::TensorSpec& tensor : file.tensors) {
      tensor.shape = shape_of(tensor.name, result.rules, values);
    }
  }
  return result;
}

double scale_of(const Layout& layout, const Layout& original) {
  const std::uint64_t whole = tensor_bytes(original);
  if (whole == 0) return 1;
  return static_cast<double>(tensor_bytes(layout)) / static_cast<double>(whole);
}

}  // namespace safeshuffle::synth
