#include "core/machine.hpp"

#include <algorithm>
#include <charconv>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/descriptor.hpp"
#include "core/system_call.hpp"

namespace safeshuffle::core {
namespace {

/// What follows "`name`" and a colon in a file of /proc with such lines; empty if there is none.
std::string proc_field(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const auto colon = line.find_first_not_of(" \t", name.size());
    if (colon == std::string::npos || line[colon] != ':') continue;
    const auto value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? std::string() : line.substr(value);
  }
  return {};
}

/// In mountinfo, spaces and the like are written as three octal digits: "\040".
std::string unescaped(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const char* const digits = text.data() + i + 1;
    const bool escape = text[i] == '\\' && i + 3 < text.size() &&
                        std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3;
    result += escape ? static_cast<char>(code) : text[i];
    if (escape) i += 3;
  }
  return result;
}

}  // namespace

std::string cpu_model() {
  return proc_field("/proc/cpuinfo", "model name");
}

unsigned online_cpus() noexcept {
  return static_cast<unsigned>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 0L));
}

std::uint64_t memory_bytes() noexcept {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t available_memory_bytes() {
  std::istringstream field(proc_field("/proc/meminfo", "MemAvailable"));
  std::uint64_t kibibytes = 0;
  field >> kibibytes;
  return kibibytes * 1024;
}

std::string kernel_release() {
  utsname names{};
  return ::uname(&names) == 0 ? names.release : "";
}

Mount mount_of(const std::string& path) {
  const Descriptor file(uninterrupted([&] { return ::open(path.c_str(), O_PATH | O_CLOEXEC); }));
  if (!file) return {};
  const std::string number =
      proc_field("/proc/self/fdinfo/" + std::to_string(file.value()), "mnt_id");
  std::ostringstream mounts;
  mounts << std::ifstream("/proc/self/mountinfo").rdbuf();
  return find_mount(mounts.str(), number);
}

// "36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/root rw": the number, and, after a varying
// number of fields and a dash, type and device.
Mount find_mount(std::string_view mountinfo, std::string_view number) {
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string word;
    if (!(fields >> word) || word != number) continue;
    while (fields >> word && word != "-") continue;
    std::string type;
    std::string device;
    if (fields >> type >> device) return {unescaped(type), unescaped(device)};
  }
  return {};
}

}  // namespace safeshuffle::core
