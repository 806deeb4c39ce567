// Which rule applies to a tensor, by the tensor's name.
//
// Names and keys are sequences of components between dots. A component of a key matches itself;
// with `*`, it matches every component that becomes equal to it when each run of digits is replaced
// by `*`. The key that matches the most components takes precedence; of equally long ones, the one
// that is literal where they first differ. A base-model prefix, such as "model", is ignored on both
// sides.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace safeshuffle::placement {

/// `text` with every run of digits replaced by `*`.
std::string generic(std::string_view text);

/// The first component of `name` as a number; none if it does not consist of digits. Numbers that
/// are too large become the largest one.
std::optional<std::uint64_t> leading_number(std::string_view name);

/// Immutable once filled; `find` is safe to call from several threads.
class Matcher {
 public:
  /// `prefixes`: paths such as "model" or "language_model.model".
  explicit Matcher(std::vector<std::string> prefixes);

  /// Adds `key` with `value`, unless the key already has one; returns the value it has.
  std::size_t add(std::string_view key, std::size_t value);

  /// The value of the best key for `name`; none if no key matches. Sets `covering[value]` for every
  /// key that matches, the best or not; it must have an element for every value.
  std::optional<std::size_t> find(std::string_view name, std::vector<bool>& covering) const;

  /// The components of `name` after those that `key`, which matches it, stands for.
  std::string_view below(std::string_view key, std::string_view name) const;

  /// `name`, or a key, without its base-model prefix, if any.
  std::string_view without_prefix(std::string_view name) const;

 private:
  struct Node {
    std::map<std::string, Node, std::less<>> children;
    std::optional<std::size_t> value;
  };
  struct Best {
    std::size_t depth = 0;
    std::optional<std::size_t> value;
    std::vector<bool>& covering;
  };

  static void search(const Node& node, std::string_view rest, std::size_t depth, Best& best);

  std::vector<std::string> prefixes_;
  Node root_;
};

}  // namespace safeshuffle::placement
