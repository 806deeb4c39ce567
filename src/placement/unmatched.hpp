// Keys of a rule file that match no tensor: usually a typing error, or rules for another model.
#pragma once

#include <string>
#include <vector>

#include "safeshuffle/metadata.hpp"

#include "placement/rule_set.hpp"

namespace safeshuffle::placement {

/// Throws ConfigError if there is a key that is not `optional` and matches no tensor of the
/// catalog. `covering` tells for each key whether it matches one. Keys of a plan only have to match
/// if none of it does; `unmatched_warning` names them. Empty: there are none.
void check_keys(const RuleSet& rules, const Catalog& catalog, const std::vector<bool>& covering);
std::string unmatched_warning(const RuleSet& rules, const std::vector<bool>& covering);

/// Whether the checkpoint lacks tensors that the rules require.
bool lacks_required(const RuleSet& rules, const std::vector<bool>& covering);

/// Throws ConfigError about keys, at least one, that match no tensor of the catalog.
[[noreturn]] void fail_keys(const RuleSet& rules, const Catalog& catalog,
                            const std::vector<const Key*>& unmatched);

}  // namespace safeshuffle::placement
