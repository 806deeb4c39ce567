// Named values of options that accept one of several.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace safeshuffle::app {

/// The values of an option by name, in the order in which the help lists them.
template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;

/// "auto, none, json".
template <class Value>
std::string list_of(const Choices<Value>& choices) {
  std::string list;
  for (const auto& [name, value] : choices) list += (list.empty() ? "" : ", ") + name;
  return list;
}

/// The value named `text`, ignoring case; null if there is none.
template <class Value>
const Value* find_choice(const Choices<Value>& choices, std::string_view text) {
  const auto same = [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  };
  for (const auto& [name, value] : choices) {
    if (std::equal(name.begin(), name.end(), text.begin(), text.end(), same)) return &value;
  }
  return nullptr;
}

/// The first name of `value`; empty if it has none. The view lives as long as `choices`.
template <class Value>
std::string_view name_of(const Choices<Value>& choices, Value value) {
  for (const auto& [name, candidate] : choices) {
    if (candidate == value) return name;
  }
  return {};
}

}  // namespace safeshuffle::app
