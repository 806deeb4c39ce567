// The JSON text of a probe.
#pragma once

#include <string>

#include "safeshuffle/probe.hpp"

#include "placement/document.hpp"

namespace safeshuffle::probing {

/// What is read back from it.
struct ProbeText {
  ProbePlace place;
  std::string date;
  unsigned cores = 0;  ///< 0: the text does not say
  Costs costs;
};

/// Throws ConfigError, see costs_from_probe.
ProbeText parse_probe(const placement::Document& document);

}  // namespace safeshuffle::probing
