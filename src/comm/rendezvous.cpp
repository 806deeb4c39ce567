#include "comm/rendezvous.hpp"

#include <string_view>

#include "safeshuffle/error.hpp"

#include "comm/rendezvous_file.hpp"
#include "comm/rendezvous_protocol.hpp"
#include "comm/rendezvous_tcp.hpp"

namespace safeshuffle::comm {
namespace {

constexpr std::string_view tcp_scheme = "tcp://";
constexpr std::string_view file_scheme = "file://";

[[noreturn]] void bad_address(const Meeting& meeting, const std::string& why) {
  throw ConfigError("the address '" + meeting.address + "' of the meeting " + why);
}

std::string path_of(const Meeting& meeting) {
  std::string_view path = meeting.address;
  if (path.starts_with(file_scheme)) {
    path.remove_prefix(file_scheme.size());
    if (!path.starts_with('/')) bad_address(meeting, "must be file:// and an absolute path");
  } else if (path.find("://") != std::string_view::npos) {
    bad_address(meeting, "has an unknown scheme; tcp://, file:// and paths are possible");
  }
  if (path.empty() || path.ends_with('/')) bad_address(meeting, "names no file");
  return std::string(path);
}

void check_place(const Meeting& meeting) {
  if (meeting.rank < meeting.world) return;
  throw ConfigError("rank " + std::to_string(meeting.rank) + " cannot be in a world of " +
                    std::to_string(meeting.world));
}

}  // namespace

std::string rendezvous(const Meeting& meeting, const std::function<std::string()>& step,
                       core::Deadline deadline) {
  check_place(meeting);
  if (meeting.world == 1) return open_answer(answer_of(step));
  if (meeting.address.starts_with(tcp_scheme)) return meet_by_tcp(meeting, step, deadline);
  return meet_by_file(meeting, path_of(meeting), step, deadline);
}

}  // namespace safeshuffle::comm
