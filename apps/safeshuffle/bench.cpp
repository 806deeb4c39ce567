// safeshuffle bench: scaling experiments. They are measured by a program in Python, which starts
// loads with this command; here it is found, and this process becomes it.
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "safeshuffle/error.hpp"

#include "commands.hpp"
#include "core/launcher.hpp"

namespace safeshuffle::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* interpreter = "python3";

[[noreturn]] void refuse(int code, const std::string& file, const std::string& cause) {
  throw IoError(ErrorRecord{.kind = ErrorKind::io, .code = code, .file = file, .cause = cause});
}

fs::path own_path() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error)
    refuse(error.value(), "/proc/self/exe", "cannot find this command: " + error.message());
  return path;
}

// Relative to the command, in a build as well as where it is installed.
fs::path program_beside(const fs::path& command) {
  const fs::path path =
      (command.parent_path() / SAFESHUFFLE_LIBEXEC / "scripts" / "bench").lexically_normal();
  std::error_code error;
  if (!fs::exists(path, error)) {
    refuse(ENOENT, path.string(), "bench is not installed: this program is missing");
  }
  return path;
}

void refuse_launcher() {
  if (core::how_launched() == core::Launch::alone) return;
  throw ConfigError("bench starts the ranks itself: run it without mpirun, srun or torchrun");
}

// The other program gets this one's signals as they were at its start.
void unblock_signals() {
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void become(std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  unblock_signals();
  ::execvp(pointers[0], pointers.data());
  const int code = errno;
  refuse(code, interpreter,
         code == ENOENT ? "bench needs Python 3.11 or newer, and PATH has no python3"
                        : "cannot be started: " + std::generic_category().message(code));
}

void run(const std::vector<std::string>& arguments) {
  refuse_launcher();
  const fs::path command = own_path();
  std::vector<std::string> words{interpreter, program_beside(command).string(), "--command",
                                 command.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  become(std::move(words));
}

}  // namespace

void add_bench(CLI::App& parser) {
  CLI::App* sub = parser.add_subcommand("bench", "Run scaling experiments: figures and plots");
  // The other program has the options, --help included.
  sub->set_help_flag();
  sub->prefix_command();
  sub->callback([sub] { run(sub->remaining()); });
}

}  // namespace safeshuffle::app
