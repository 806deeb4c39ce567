// What the operating system knows about this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace safeshuffle::core {

/// Largest resident set so far, in bytes.
std::uint64_t peak_resident_bytes() noexcept;

/// CPU time that all threads have used so far, of the program and of the system on its behalf.
double cpu_seconds() noexcept;

/// Name of the node; empty if unknown.
std::string host_name();

/// Identifies the node: equal in all its processes, even in containers, and different on every
/// other node. The host's name if the kernel provides no identifier.
std::string node_id();

/// How many nodes ranks run on, and how many ranks on the first. `nodes`: the name or id of each
/// rank's, > 0 of them.
std::uint32_t node_count(const std::vector<std::string>& nodes);
std::uint32_t ranks_per_node(const std::vector<std::string>& nodes);

/// Date and time, UTC, such as "2026-11-22T09:00:00Z".
std::string utc_now();

/// Cores this process may run on, at least 1.
unsigned available_cores() noexcept;

}  // namespace safeshuffle::core
