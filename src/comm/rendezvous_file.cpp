#include "comm/rendezvous_file.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

#include "comm/reception.hpp"
#include "comm/rendezvous_protocol.hpp"
#include "core/posix_file.hpp"
#include "core/random.hpp"
#include "core/system_call.hpp"
#include "core/wire.hpp"

namespace safeshuffle::comm {
namespace {

namespace fs = std::filesystem;

constexpr char invitation_mark = '!';
constexpr std::string_view unfinished = ".tmp";
constexpr std::string_view digits = "0123456789abcdef";

/// What rank 0 writes at the path of the meeting.
struct Invitation {
  std::string meeting;           ///< random
  std::string answer;            ///< empty: not yet
  std::set<std::string> guests;  ///< nonces of those that the answer is for
};

std::string encode(const Invitation& invitation) {
  core::WireWriter out;
  out.put(invitation.meeting).put(invitation.answer).put(std::uint64_t{invitation.guests.size()});
  for (const std::string& guest : invitation.guests) out.put(guest);
  return invitation_mark + out.take();
}

Invitation decode_invitation(std::string_view text) {
  if (!text.starts_with(invitation_mark)) throw TransportError("not a rendezvous file");
  core::WireReader in(text.substr(1));
  Invitation invitation;
  invitation.meeting = in.text();
  invitation.answer = in.text();
  for (std::uint64_t left = in.number(); left > 0; --left) invitation.guests.insert(in.text());
  return invitation;
}

std::string read_framed(const std::string& path) {
  constexpr std::size_t limit = std::size_t{64} << 20;
  const auto text = unframe(core::read_text(path, limit), limit);
  if (!text) throw TransportError(path + " is incomplete");
  return *text;
}

std::string stem_of(const std::string& path) {
  return path + ".rank-";
}

void remove_quietly(const std::string& path) noexcept {
  std::error_code ignored;
  fs::remove(path, ignored);
}

/// Makes a file that only the user can read appear at `path`, whole, in place of what was there.
void write_framed(const std::string& path, const std::string& temporary, std::string_view text) {
  constexpr unsigned only_the_user = 0600;
  const std::string content = frame(text);
  try {
    const auto file = core::PosixFile::create(temporary, path, only_the_user);
    file.write(0, std::as_bytes(std::span(content)));
    file.sync();
    core::rename_file(temporary, path);
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
}

/// Whether `rest` is what follows the stem in the names of this protocol, K-RANDOM: other files
/// beside the path are not to be touched.
bool names_guest(std::string_view rest) {
  constexpr std::size_t nonce_digits = 32;
  if (rest.ends_with(unfinished)) rest.remove_suffix(unfinished.size());
  const std::size_t dash = rest.find_first_not_of(digits.substr(0, 10));
  if (dash == 0 || dash == std::string_view::npos || rest[dash] != '-') return false;
  const std::string_view nonce = rest.substr(dash + 1);
  return nonce.size() == nonce_digits && nonce.find_first_not_of(digits) == nonce.npos;
}

/// All files of guests of any meeting at `path`.
std::set<std::string> guest_files(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const std::string stem = stem_of(fs::path(path).filename());
  std::set<std::string> found;
  std::error_code code;
  for (fs::directory_iterator entry(parent.empty() ? "." : parent, code), end;
       !code && entry != end; entry.increment(code)) {
    const std::string name = entry->path().filename();
    if (name.starts_with(stem) && names_guest(std::string_view(name).substr(stem.size()))) {
      found.insert(entry->path());
    }
  }
  if (code) core::raise_errno(code.value(), parent, "cannot list the directory of the meeting");
  return found;
}

/// Rank 0's file and its guests.
class FileHost {
 public:
  /// Removes what earlier meetings have left, and invites.
  explicit FileHost(std::string path) : path_(std::move(path)), temporary_(stem_of(path_)) {
    invitation_.meeting = fresh_nonce();
    temporary_ += "0-" + core::hexadecimal(invitation_.meeting) + std::string(unfinished);
    require_replaceable();
    for (const std::string& file : guest_files(path_)) remove_quietly(file);
    publish();
  }

  ~FileHost() try {
    if (meeting_at_path() == invitation_.meeting) remove_quietly(path_);
  } catch (...) {  // no memory to look: the file is left for the next meeting to remove
  }

  FileHost(const FileHost&) = delete;
  FileHost& operator=(const FileHost&) = delete;

  void run(Reception& reception, const core::Deadline& deadline) {
    serve_until(reception, deadline, [&] { return reception.over() && guests_.empty(); });
    if (reception.over()) return;
    reception.give_up(deadline.limit());
    // Those that wait are given the time to read that the meeting has failed.
    const core::Deadline farewell(std::chrono::milliseconds(1000));
    serve_until(reception, farewell, [&] { return guests_.empty(); });
  }

 private:
  struct Guest {
    std::uint64_t rank = 0;
    std::string nonce;
  };

  template <typename Done>
  void serve_until(Reception& reception, const core::Deadline& deadline, const Done& done) {
    Pause pause;
    for (;;) {
      look(reception);
      if (reception.release()) announce(reception.answer());
      if (done() || deadline.expired()) return;
      pause(deadline);
    }
  }

  void look(Reception& reception) {
    require_own_path();
    const std::set<std::string> files = guest_files(path_);
    // Listed once more: a guest that came when another had left must not seem to be there with it.
    see_off(reception, guest_files(path_));
    for (const std::string& file : files) {
      if (!guests_.contains(file) && !file.ends_with(unfinished)) receive(reception, file);
    }
  }

  void see_off(Reception& reception, const std::set<std::string>& files) {
    std::erase_if(guests_, [&](const auto& entry) {
      if (files.contains(entry.first)) return false;
      const Guest& guest = entry.second;
      if (invitation_.guests.contains(guest.nonce)) {
        reception.serve(guest.rank);
      } else {
        reception.leave(guest.rank);
      }
      return true;
    });
  }

  void receive(Reception& reception, const std::string& file) {
    const auto greeting = read_greeting(reception, file);
    if (!greeting || greeting->job != invitation_.meeting) return;
    const auto reply = reception.greet(*greeting);
    if (reply && *reply != reception.answer()) return;
    guests_[file] = {greeting->rank, greeting->nonce};
  }

  /// Nothing for a file that is gone again or cannot be read: its rank counts as missing.
  static std::optional<Greeting> read_greeting(Reception& reception, const std::string& file) {
    try {
      return decode_greeting(read_framed(file));
    } catch (const ConfigError& error) {  // of another version of the library
      reception.refuse(error.record().cause);
    } catch (const Error&) {
    }
    return std::nullopt;
  }

  void announce(const std::string& answer) {
    std::set<std::string> guests = invitation_.guests;
    for (const auto& [file, guest] : guests_) guests.insert(guest.nonce);
    if (answer == invitation_.answer && guests == invitation_.guests) return;
    invitation_.answer = answer;
    invitation_.guests = std::move(guests);
    publish();
  }

  void publish() const { write_framed(path_, temporary_, encode(invitation_)); }

  /// The name of the meeting that the file at the path invites to, if it can be read.
  std::optional<std::string> meeting_at_path() const {
    try {
      return decode_invitation(read_framed(path_)).meeting;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  void require_own_path() const {
    const auto found = meeting_at_path();
    if (!found) return publish();
    if (*found != invitation_.meeting) refuse_path("another job meets at the same path");
  }

  /// What lies at the path must be of an earlier meeting, or empty: it will be replaced.
  void require_replaceable() const {
    std::error_code none;
    if (!fs::exists(path_, none) || fs::is_empty(path_, none)) return;
    try {
      decode_invitation(read_framed(path_));
    } catch (const TransportError&) {
      refuse_path("is not of an earlier meeting, and will not be replaced");
    } catch (const ConfigError&) {
      return;  // of another version of the library
    }
  }

  [[noreturn]] void refuse_path(const char* cause) const {
    throw ConfigError(ErrorRecord{.file = path_, .cause = cause});
  }

  std::string path_;
  std::string temporary_;
  Invitation invitation_;
  std::map<std::string, Guest> guests_;  // by file
};

/// The file of another rank.
class FileGuest {
 public:
  FileGuest(const Meeting& meeting, std::string path, std::optional<ErrorRecord> failure)
      : path_(std::move(path)),
        greeting_{meeting.world, meeting.rank, {}, fresh_nonce(), std::move(failure)} {
    file_ =
        stem_of(path_) + std::to_string(meeting.rank) + "-" + core::hexadecimal(greeting_.nonce);
  }

  ~FileGuest() { remove_quietly(file_); }

  FileGuest(const FileGuest&) = delete;
  FileGuest& operator=(const FileGuest&) = delete;

  std::string run(const core::Deadline& deadline) {
    for (Pause pause;; pause(deadline)) {
      if (const auto invitation = find_invitation()) {
        if (invitation->guests.contains(greeting_.nonce)) return invitation->answer;
        greet(invitation->meeting);
      }
      if (deadline.expired()) {
        raise_not_reached(greeting_.failure, path_, deadline.limit(), cause_);
      }
    }
  }

 private:
  /// Nothing while there is none, or it is just being replaced.
  std::optional<Invitation> find_invitation() {
    try {
      cause_ = "not all ranks have come";
      return decode_invitation(read_framed(path_));
    } catch (const Error& error) {
      cause_ = error.record().cause;
      return std::nullopt;
    }
  }

  void greet(const std::string& meeting) {
    if (meeting == greeting_.job) return;
    Greeting greeting = greeting_;
    greeting.job = meeting;
    try {
      write_framed(file_, file_ + std::string(unfinished), encode(greeting));
      greeting_ = std::move(greeting);
    } catch (const IoError& error) {
      // ENOENT: removed by the next rank 0, whose invitation is about to come.
      if (error.record().code != ENOENT) throw;
    }
  }

  std::string path_;
  std::string file_;
  Greeting greeting_;  // as last written
  std::string cause_;  // why there is no answer yet
};

}  // namespace

std::string meet_by_file(const Meeting& meeting, const std::string& path,
                         const std::function<std::string()>& step, const core::Deadline& deadline) {
  if (meeting.rank != 0) {
    FileGuest guest(meeting, path, failure_of(step, meeting.rank));
    return open_answer(guest.run(deadline));
  }
  FileHost host(path);
  Reception reception(meeting, answer_of(step));
  host.run(reception, deadline);
  return open_answer(reception.answer());
}

}  // namespace safeshuffle::comm
