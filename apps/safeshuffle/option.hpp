// Options with types of values that the parser does not provide.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <CLI/CLI.hpp>

#include "choice.hpp"

namespace safeshuffle::app {

/// Adds an option with one value, which `set` accepts or rejects with a CLI::ValidationError.
/// `metavar` represents the value in the help.
CLI::Option* add_value(CLI::App& parser, const std::string& name, const std::string& metavar,
                       std::function<void(const std::string&)> set, const std::string& help);

/// Adds an option that takes a size of `least` bytes or more.
CLI::Option* add_size(CLI::App& parser, const std::string& name, std::uint64_t& value,
                      const std::string& help, std::uint64_t least = 0);

/// Adds an option that takes a number from 1 to `most`, which the help says.
CLI::Option* add_count(CLI::App& parser, const std::string& name, const std::string& metavar,
                       std::uint32_t& value, std::uint32_t most, const std::string& help);

/// For add_choice.
[[noreturn]] void refuse_choice(const std::string& name, const std::string& text,
                                const std::string& choices);

/// Adds an option that sets `value`, whose current value is the default, to one of `choices`.
template <class Value>
CLI::Option* add_choice(CLI::App& parser, const std::string& name, const std::string& metavar,
                        Value& value, const Choices<Value>& choices, const std::string& help) {
  const auto set = [&value, name, choices](const std::string& text) {
    const Value* chosen = find_choice(choices, text);
    if (chosen == nullptr) refuse_choice(name, text, list_of(choices));
    value = *chosen;
  };
  return add_value(parser, name, metavar, set, help + ": " + list_of(choices))
      ->default_str(std::string(name_of(choices, value)));
}

}  // namespace safeshuffle::app
