#include "core/process.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <sched.h>
#include <set>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace safeshuffle::core {

std::uint64_t peak_resident_bytes() noexcept {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;  // Linux counts KiB
}

double cpu_seconds() noexcept {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string host_name() {
  std::array<char, 256> name{};
  const int code = gethostname(name.data(), name.size() - 1);
  return code == 0 ? std::string(name.data()) : std::string();
}

std::string node_id() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return boot.empty() ? host_name() : boot;
}

std::uint32_t node_count(const std::vector<std::string>& nodes) {
  return static_cast<std::uint32_t>(std::set<std::string>(nodes.begin(), nodes.end()).size());
}

std::uint32_t ranks_per_node(const std::vector<std::string>& nodes) {
  return static_cast<std::uint32_t>(std::ranges::count(nodes, nodes.front()));
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  ::gmtime_r(&now, &fields);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &fields);
  return {text.data(), length};
}

unsigned available_cores() noexcept {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&allowed)));
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace safeshuffle::core
