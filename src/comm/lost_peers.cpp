#include "comm/lost_peers.hpp"

#include <utility>

#include "safeshuffle/error.hpp"

#include "core/text.hpp"

namespace safeshuffle::comm {
namespace {

std::string listed(const std::vector<std::uint32_t>& ranks) {
  std::string text = "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

void raise_lost_peers(const std::string& what, const std::vector<std::uint32_t>& missing,
                      std::chrono::milliseconds limit) {
  ErrorRecord record{.cause = what};
  record.cause += ": no answer within " + core::seconds_text(limit);
  if (!missing.empty()) {
    record.rank = static_cast<std::int32_t>(missing.front());
    if (missing.size() > 1) record.cause += " from " + listed(missing);
  }
  throw TimeoutError(std::move(record));
}

}  // namespace safeshuffle::comm
