// Options of a load by name and text.
#pragma once

#include <string>
#include <string_view>

#include "safeshuffle/options.hpp"

namespace safeshuffle::c_api {

/// Sets the option that the command has under that name, without the dashes; of those that can be
/// given several times, adds a value. Throws ConfigError if there is none, or no such value.
void set_option(Options& options, const std::string& name, std::string_view value);

}  // namespace safeshuffle::c_api
