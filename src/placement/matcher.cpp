#include "placement/matcher.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>

namespace safeshuffle::placement {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Removes the first component from `rest`, including its dot.
std::string_view take_component(std::string_view& rest) {
  const std::string_view component = rest.substr(0, rest.find('.'));
  rest.remove_prefix(std::min(rest.size(), component.size() + 1));
  return component;
}

bool is_prefix(std::string_view prefix, std::string_view name) {
  return name.size() > prefix.size() && name.starts_with(prefix) && name[prefix.size()] == '.';
}

}  // namespace

std::string generic(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (!is_digit(c)) {
      result += c;
    } else if (result.empty() || result.back() != '*') {
      result += '*';
    }
  }
  return result;
}

std::optional<std::uint64_t> leading_number(std::string_view name) {
  const std::string_view component = take_component(name);
  if (component.empty() || !std::all_of(component.begin(), component.end(), is_digit)) {
    return std::nullopt;
  }
  std::uint64_t number = 0;
  const auto read = std::from_chars(component.data(), component.data() + component.size(), number);
  return read.ec == std::errc() ? number : UINT64_MAX;
}

Matcher::Matcher(std::vector<std::string> prefixes) : prefixes_(std::move(prefixes)) {
  std::sort(prefixes_.begin(), prefixes_.end(),
            [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

std::size_t Matcher::add(std::string_view key, std::size_t value) {
  Node* node = &root_;
  for (std::string_view rest = without_prefix(key); !rest.empty();) {
    const std::string_view component = take_component(rest);
    node = &node->children[std::string(component)];
  }
  if (!node->value) node->value = value;
  return *node->value;
}

std::optional<std::size_t> Matcher::find(std::string_view name, std::vector<bool>& covering) const {
  Best best{.depth = 0, .value = std::nullopt, .covering = covering};
  search(root_, without_prefix(name), 0, best);
  return best.value;
}

std::string_view Matcher::below(std::string_view key, std::string_view name) const {
  std::string_view rest = without_prefix(name);
  for (std::string_view matched = without_prefix(key); !matched.empty();) {
    take_component(matched);
    take_component(rest);
  }
  return rest;
}

std::string_view Matcher::without_prefix(std::string_view name) const {
  for (const std::string& prefix : prefixes_) {
    if (is_prefix(prefix, name)) return name.substr(prefix.size() + 1);
  }
  return name;
}

// Visits every node of the tree at most once. Literal children come first, so they win ties.
void Matcher::search(const Node& node, std::string_view rest, std::size_t depth, Best& best) {
  if (node.value) best.covering[*node.value] = true;
  if (node.value && (!best.value || depth > best.depth)) {
    best.depth = depth;
    best.value = node.value;
  }
  if (rest.empty() || node.children.empty()) return;
  const std::string_view component = take_component(rest);
  if (const auto child = node.children.find(component); child != node.children.end()) {
    search(child->second, rest, depth + 1, best);
  }
  if (std::none_of(component.begin(), component.end(), is_digit)) return;
  if (const auto child = node.children.find(generic(component)); child != node.children.end()) {
    search(child->second, rest, depth + 1, best);
  }
}

}  // namespace safeshuffle::placement
