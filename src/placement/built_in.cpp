#include "placement/built_in.hpp"

#include "core/embedded.hpp"
#include "placement/rule_set.hpp"

namespace safeshuffle::placement {

std::vector<BuiltIn> built_in_rules() {
  std::vector<BuiltIn> all;
  for (const core::EmbeddedFile& file : core::embedded_tp_rules()) {
    const std::string name(file.stem);
    const Document document{"built-in rules '" + name + "'", std::string(file.text)};
    all.push_back({name, model_types_of(document), document});
  }
  return all;
}

}  // namespace safeshuffle::placement
