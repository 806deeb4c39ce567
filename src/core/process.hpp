// What the operating system says of this process.
#pragma once

#include <cstdint>
#include <string>

namespace safeshuffle::core {

/// Largest resident set so far, in bytes.
std::uint64_t peak_resident_bytes() noexcept;

/// Name of the node; empty if it cannot be known.
std::string host_name();

/// Identifies the node: equal in all its processes, also those in containers, and different on
/// every other node. The host's name where the kernel does not say.
std::string node_id();

/// Cores this process may run on, at least 1.
unsigned available_cores() noexcept;

}  // namespace safeshuffle::core
