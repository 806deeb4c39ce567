// Encodes reports for sending them between ranks.
#pragma once

#include <string>
#include <string_view>

#include "safeshuffle/report.hpp"

namespace safeshuffle::pipeline {

/// For sending between ranks of the same build.
std::string encode(const RankReport& rank);
RankReport decode_rank_report(std::string_view bytes);

}  // namespace safeshuffle::pipeline
