// Options with types of values that the parser does not provide.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace safeshuffle::app {

/// Adds an option that takes a size in bytes, such as "4096", "64MiB" or "2GB".
CLI::Option* add_size(CLI::App& parser, const std::string& name, std::uint64_t& value,
                      const std::string& help);

/// Adds an option that takes a number from 1 to `most`, which the help says. `metavar` represents
/// the number in the help.
CLI::Option* add_count(CLI::App& parser, const std::string& name, const std::string& metavar,
                       std::uint32_t& value, std::uint32_t most, const std::string& help);

/// Adds an option that takes one of `names`, in any case, and passes it to `set`.
CLI::Option* add_name(CLI::App& parser, const std::string& name, const std::string& metavar,
                      const std::vector<std::string>& names,
                      const std::function<void(const std::string&)>& set, const std::string& help);

/// The values of an option by name, in the order in which the help lists them.
template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;

/// Adds an option that sets `value`, whose current value is the default, to one of `choices`.
template <class Value>
CLI::Option* add_choice(CLI::App& parser, const std::string& name, const std::string& metavar,
                        Value& value, const Choices<Value>& choices, const std::string& help) {
  using Choice = typename Choices<Value>::value_type;
  std::vector<std::string> names;
  for (const Choice& choice : choices) names.push_back(choice.first);
  const auto set = [&value, choices](const std::string& chosen) {
    value = std::ranges::find(choices, chosen, &Choice::first)->second;
  };
  return add_name(parser, name, metavar, names, set, help)
      ->default_str(std::ranges::find(choices, value, &Choice::second)->first);
}

}  // namespace safeshuffle::app
