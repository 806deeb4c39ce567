// Which CPUs threads run on. Linux only, like the rest of core.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace safeshuffle::core {

using CpuSet = std::set<unsigned>;

/// Those that the calling thread may run on; empty if the system does not say.
CpuSet allowed_cpus();

/// Those that the process's cgroup lets its threads run on: what it was bound to with
/// sched_setaffinity, as launchers do, does not count. Throws MemoryError if there can be no
/// thread.
CpuSet permitted_cpus();

/// In the kernel's list format, such as "0-15,64-79"; ends of line are ignored.
std::string cpu_list(const CpuSet& cpus);

/// Of such a list; empty if it is none.
CpuSet parse_cpu_list(std::string_view list);

/// Of `cpus`, those of the NUMA node of a PCI device, such as "0000:1B:00.0"; empty if none is
/// known. `sysfs` is where the kernel describes devices.
CpuSet cpus_near(const std::string& pci_address, const CpuSet& cpus,
                 const std::string& sysfs = "/sys");

/// Runs `call` on a thread of its own, bound to `cpus` if the system lets it, and waits for it;
/// threads that `call` starts are bound likewise, and memory that it is the first to touch is on
/// their NUMA node. With no `cpus`, runs it on the calling thread. Throws what `call` throws;
/// MemoryError if there can be no thread.
void run_on(const CpuSet& cpus, const std::function<void()>& call);

}  // namespace safeshuffle::core
