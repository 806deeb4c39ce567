#include "core/lost_peers.hpp"

#include "core/text.hpp"

namespace safeshuffle::core {
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

ErrorRecord lost_peers(const std::string& what, const std::vector<std::uint32_t>& missing,
                       std::chrono::milliseconds limit) {
  ErrorRecord record{.kind = ErrorKind::timeout, .cause = what};
  record.cause += ": no answer within " + seconds_text(limit);
  if (!missing.empty()) {
    record.rank = static_cast<std::int32_t>(missing.front());
    if (missing.size() > 1) record.cause += " from " + listed(missing);
  }
  return record;
}

}  // namespace safeshuffle::core
