// What the operating system knows about this process.
#pragma once

#include <cstdint>
#include <string>

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

/// Cores this process may run on, at least 1.
unsigned available_cores() noexcept;

}  // namespace safeshuffle::core
