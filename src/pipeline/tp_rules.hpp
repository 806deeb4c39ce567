// Gets the rules that Options::tp_plan selects.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "safeshuffle/loader.hpp"

namespace safeshuffle::pipeline {

/// The rule file that `tp_plan` names; empty if it is none.
std::string rules_path(std::string_view tp_plan);

/// The text of the rules that `tp_plan` is, or of the file that it names; empty for the built-in
/// choices. Throws IoError.
std::string read_rules(std::string_view tp_plan);

/// select_tp_plan (loader.hpp), if `options.tp_plan` names a file, with that file's text. Throws
/// ConfigError; as check_sharded_state.
TpPlan make_tp_plan(const Options& options, std::string_view rules_json,
                    const Checkpoint& checkpoint, std::uint32_t world);

}  // namespace safeshuffle::pipeline
