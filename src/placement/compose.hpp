// The section `compose`: tensors that are loaded otherwise than they are stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "placement/document.hpp"
#include "placement/rule_parser.hpp"

namespace safeshuffle::placement {

/// What all entries of the section have.
struct Entry {
  std::string path;       ///< where in the file, such as "compose[2]"
  bool optional = false;  ///< whether the checkpoint may have no such tensor
};

/// Names are patterns (name_pattern.hpp); all of one entry have the same number of `*`.
struct JoinEntry {
  Entry entry;
  std::vector<std::string> parts;
  std::string as;
  int dim = 0;
};

struct SplitEntry {
  Entry entry;
  std::string name;
  std::vector<std::string> into;
  std::vector<std::uint64_t> sizes;  ///< by name in `into`, in proportion
  int dim = 0;
};

struct TieEntry {
  Entry entry;
  std::vector<std::string> names;
  std::optional<bool> tied;  ///< none: if the checkpoint lacks one of them
};

struct PadEntry {
  Entry entry;
  std::string name;
  int dim = 0;
  std::uint64_t multiple = 1;
};

/// Immutable once made.
struct Compose {
  std::vector<JoinEntry> joins;
  std::vector<SplitEntry> splits;
  std::vector<TieEntry> ties;
  std::vector<PadEntry> pads;
};

/// Throws ConfigError.
Compose parse_compose(const nlohmann::json& list, const RuleParser& parser,
                      const Quantities& quantities, const Document& document);

}  // namespace safeshuffle::placement
