#include "synth/shape_rules.hpp"

#include <nlohmann/json.hpp>

#include "safeshuffle/error.hpp"

namespace safeshuffle::synth {
namespace {

[[noreturn]] void fail(const std::string& tensor, std::string cause) {
  throw ConfigError(ErrorRecord{.tensor = tensor, .cause = std::move(cause)});
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

Values numbers_of(const std::string& config_json) {
  Values values;
  const auto config = nlohmann::json::parse(config_json);
  for (const auto& [key, value] : config.items()) {
    if (value.is_number_unsigned()) values.emplace(key, value.get<std::uint64_t>());
  }
  return values;
}

}  // namespace

std::string pattern_of(std::string_view name) {
  std::string pattern;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view component = name.substr(begin, end - begin);
    pattern += is_number(component) ? "*" : component;
    if (end != name.size()) pattern += '.';
    begin = end + 1;
  }
  return pattern;
}

std::optional<Values> values_of(const std::string& config_json, const ShapeRules& rules) {
  Values values = numbers_of(config_json);
  for (const auto& [name, expression] : rules.dimensions) {
    const auto value = evaluate(expression, values);
    if (!value) return std::nullopt;
    values.insert_or_assign(name, *value);
  }
  return values;
}

Shape shape_of(const std::string& name, const ShapeRules& rules, const Values& values) {
  const auto rule = rules.extents.find(pattern_of(name));
  if (rule == rules.extents.end()) fail(name, "no rule defines its shape");
  Shape shape;
  for (const std::string& expression : rule->second) {
    const auto extent = evaluate(expression, values);
    if (!extent) fail(name, "extent '" + expression + "' is not a whole number");
    shape.push_back(*extent);
  }
  return shape;
}

}  // namespace safeshuffle::synth
