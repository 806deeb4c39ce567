// Which CPUs threads run on. Linux only, like the rest of core.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace safeshuffle::core {

using CpuSet = std::set<unsigned>;

/// The CPUs that the calling thread may run on; empty if unknown.
CpuSet allowed_cpus();

/// The CPUs that the process's cgroup allows, regardless of any binding with sched_setaffinity, as
/// launchers do. Throws MemoryError if no thread can be started.
CpuSet permitted_cpus();

/// Binds the calling thread, and those that it will start; none if the system does not let it.
void bind_this_thread(const CpuSet& cpus);

/// In the kernel's list format, such as "0-15,64-79"; ends of line are ignored.
std::string cpu_list(const CpuSet& cpus);

/// Parses such a list; empty if it is not valid.
CpuSet parse_cpu_list(std::string_view list);

/// Those of `cpus` that are on the NUMA node of a PCI device, such as "0000:1B:00.0"; empty if
/// unknown. `sysfs` is where the kernel describes devices.
CpuSet cpus_near(const std::string& pci_address, const CpuSet& cpus,
                 const std::string& sysfs = "/sys");

/// Whether these are CPUs of a single core, which has several with simultaneous multithreading.
bool are_of_one_core(const CpuSet& cpus, const std::string& sysfs = "/sys");

/// Runs `call` on a thread of its own, bound to `cpus` if the system lets it, and waits for it;
/// threads that `call` starts are bound likewise, and memory that it is the first to touch is on
/// their NUMA node. With no `cpus`, runs it on the calling thread. Throws what `call` throws;
/// MemoryError if no thread can be started.
void run_on(const CpuSet& cpus, const std::function<void()>& call);

}  // namespace safeshuffle::core
