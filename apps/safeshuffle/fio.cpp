#include "fio.hpp"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/descriptor.hpp"
#include "core/system_call.hpp"

namespace safeshuffle::app {
namespace {

/// What the program prints on standard output; empty if it cannot be started or fails. Its messages
/// are dropped.
std::string output_of(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const core::Descriptor reader(ends[0]);
  core::Descriptor writer(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, writer.value(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // This process blocks the signals that end it, in all threads but one.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t child = -1;
  const int code = ::posix_spawnp(&child, words[0], &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (code != 0) return {};
  writer = core::Descriptor();
  std::string output;
  std::array<char, 4096> part{};
  for (;;) {
    const auto count =
        core::uninterrupted([&] { return ::read(reader.value(), part.data(), part.size()); });
    if (count <= 0) break;
    output.append(part.data(), static_cast<std::size_t>(count));
  }
  int status = -1;
  core::uninterrupted([&] { return ::waitpid(child, &status, 0); });
  return status == 0 ? output : std::string();
}

/// One value of --filename, in which a colon separates files.
std::string file_list(const std::vector<std::string>& files) {
  std::string list;
  for (const std::string& file : files) {
    if (!list.empty()) list += ':';
    for (const char c : file) {
      if (c == ':' || c == '\\') list += '\\';
      list += c;
    }
  }
  return list;
}

void keep_faster(std::vector<FioResult>& results, FioResult result) {
  const auto same = std::ranges::find(results, result.direct, &FioResult::direct);
  if (same == results.end()) {
    results.push_back(std::move(result));
  } else if (same->bytes_per_second < result.bytes_per_second) {
    *same = std::move(result);
  }
}

}  // namespace

std::vector<FioRun> fio_runs(double seconds) {
  const auto run = [seconds](bool direct, const std::string& settings,
                             std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {fmt::format("--direct={}", direct ? 1 : 0),
                                       fmt::format("--runtime={:.0f}ms", seconds * 1000)});
    return FioRun{direct, settings, std::move(arguments)};
  };
  return {run(true, "io_uring, blocks of 1 MiB, queue of 64",
              {"--ioengine=io_uring", "--bs=1m", "--iodepth=64"}),
          run(true, "libaio, blocks of 1 MiB, queue of 64",
              {"--ioengine=libaio", "--bs=1m", "--iodepth=64"}),
          // Less memory, which is faster on some virtual disks.
          run(true, "libaio, blocks of 1 MiB, queue of 16",
              {"--ioengine=libaio", "--bs=1m", "--iodepth=16"}),
          run(true, "psync, blocks of 8 MiB", {"--ioengine=psync", "--bs=8m"}),
          run(false, "psync, blocks of 1 MiB", {"--ioengine=psync", "--bs=1m"}),
          run(false, "psync, blocks of 8 MiB", {"--ioengine=psync", "--bs=8m"})};
}

std::optional<double> fio_rate(std::string_view json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  const auto path = nlohmann::json::json_pointer("/jobs/0/read/bw_bytes");
  if (value.is_discarded() || !value.contains(path) || !value[path].is_number()) return {};
  const auto rate = value[path].get<double>();
  return rate > 0 ? std::optional(rate) : std::nullopt;
}

std::vector<FioResult> run_fio(const std::vector<std::string>& files, double seconds,
                               const std::function<void()>& meanwhile) {
  constexpr std::size_t most_files = 64;  // of which the command line has the paths
  std::vector<std::string> some = files;
  some.resize(std::min(files.size(), most_files));
  std::vector<FioResult> results;
  for (const FioRun& run : fio_runs(seconds)) {
    // With huge pages for its buffers, as the loader has: the system divides reads into small
    // pages.
    // --readonly comes first, so that fio refuses whatever would write.
    std::vector<std::string> command{"env",
                                     "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
                                     "fio",
                                     "--readonly",
                                     "--name=probe",
                                     "--rw=read",
                                     "--allow_file_create=0",
                                     "--file_service_type=sequential",
                                     "--output-format=json",
                                     "--filename=" + file_list(some)};
    command.insert(command.end(), run.arguments.begin(), run.arguments.end());
    const auto rate = fio_rate(output_of(command));
    if (rate) keep_faster(results, {run.direct, *rate, run.settings});
    meanwhile();
  }
  return results;
}

}  // namespace safeshuffle::app
