#include "core/cpus.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <future>
#include <sched.h>
#include <system_error>
#include <utility>

#include "core/thread.hpp"

namespace safeshuffle::core {
namespace {

// The size of cpu_set_t. On larger machines the system call fails, and no thread is moved.
constexpr unsigned most_cpus = CPU_SETSIZE;

// Removes a number from the front of the list; false if there is none.
bool take_number(std::string_view& list, unsigned& number) {
  const auto [end, code] = std::from_chars(list.data(), list.data() + list.size(), number);
  if (code != std::errc() || number >= most_cpus) return false;
  list.remove_prefix(static_cast<std::size_t>(end - list.data()));
  return true;
}

bool take(std::string_view& list, char symbol) {
  if (!list.starts_with(symbol)) return false;
  list.remove_prefix(1);
  return true;
}

// Removes "3" or "3-7"; false if there is neither.
bool take_range(std::string_view& list, CpuSet& cpus) {
  unsigned first = 0;
  if (!take_number(list, first)) return false;
  unsigned last = first;
  if (take(list, '-') && !take_number(list, last)) return false;
  for (unsigned cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  return true;
}

}  // namespace

CpuSet allowed_cpus() {
  cpu_set_t set;
  CpuSet cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (unsigned cpu = 0; cpu < most_cpus; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
  }
  return cpus;
}

// Of all CPUs, the kernel keeps those that the cgroup allows.
CpuSet permitted_cpus() {
  CpuSet all;
  for (unsigned cpu = 0; cpu < most_cpus; ++cpu) all.insert(cpu);
  CpuSet permitted;
  run_on(all, [&] { permitted = allowed_cpus(); });
  return permitted;
}

// Failures are ignored: where a thread runs affects its speed only.
void bind_this_thread(const CpuSet& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned cpu : cpus) CPU_SET(cpu, &set);
  static_cast<void>(sched_setaffinity(0, sizeof set, &set));
}

std::string cpu_list(const CpuSet& cpus) {
  std::string list;
  for (auto at = cpus.begin(); at != cpus.end();) {
    const unsigned first = *at;
    unsigned last = first;
    while (++at != cpus.end() && *at == last + 1) ++last;
    if (!list.empty()) list += ',';
    list += std::to_string(first);
    if (last != first) list.append(1, '-').append(std::to_string(last));
  }
  return list;
}

CpuSet parse_cpu_list(std::string_view list) {
  while (list.ends_with('\n')) list.remove_suffix(1);
  CpuSet cpus;
  do {
    if (!take_range(list, cpus)) return {};
  } while (take(list, ','));
  return list.empty() ? cpus : CpuSet();
}

CpuSet cpus_near(const std::string& pci_address, const CpuSet& cpus, const std::string& sysfs) {
  std::string name = pci_address;  // sysfs has small letters, CUDA capital ones
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string list;
  std::getline(std::ifstream(sysfs + "/bus/pci/devices/" + name + "/local_cpulist"), list);
  CpuSet near;
  std::ranges::set_intersection(parse_cpu_list(list), cpus, std::inserter(near, near.end()));
  return near;
}

bool are_of_one_core(const CpuSet& cpus, const std::string& sysfs) {
  if (cpus.size() <= 1) return !cpus.empty();
  std::string list;
  std::getline(std::ifstream(sysfs + "/devices/system/cpu/cpu" + std::to_string(*cpus.begin()) +
                             "/topology/thread_siblings_list"),
               list);
  return std::ranges::includes(parse_cpu_list(list), cpus);
}

void run_on(const CpuSet& cpus, const std::function<void()>& call) {
  if (cpus.empty()) return call();
  std::packaged_task<void()> task([&] {
    bind_this_thread(cpus);
    call();
  });
  std::future<void> done = task.get_future();
  start_thread(std::move(task)).join();
  done.get();
}

}  // namespace safeshuffle::core
