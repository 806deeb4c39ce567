#include "output.hpp"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include "core/system_call.hpp"

namespace safeshuffle::app {
namespace {

// False, with errno, if not everything could be written.
bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count =
        core::uninterrupted([&] { return ::write(descriptor, text.data(), text.size()); });
    if (count == -1) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// Some filesystems, such as NFS, report a full disk or quota only when a descriptor of the file is
// closed.
bool flush(int descriptor) {
  const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  return copy != -1 && ::close(copy) == 0;
}

}  // namespace

void prepare_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  for (;;) {
    const int lowest = ::open("/dev/null", O_RDONLY);
    if (lowest > STDERR_FILENO) ::close(lowest);
    if (lowest > STDERR_FILENO || lowest == -1) return;
  }
}

void print_result(std::string_view text) {
  if (write_all(STDOUT_FILENO, text) && flush(STDOUT_FILENO)) return;
  core::raise_errno(errno, "standard output", "cannot write");
}

void print_message(std::string_view text) noexcept {
  static_cast<void>(write_all(STDERR_FILENO, text));
}

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    print_message("safeshuffle: warning: " + warning + "\n");
  }
}

void print_error(const ErrorRecord& error) {
  print_message("safeshuffle: error: " + describe(error) + "\n");
}

}  // namespace safeshuffle::app
