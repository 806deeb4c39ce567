// The network interface at which other ranks reach this one, chosen as NCCL chooses its own.
#pragma once

#include <string>
#include <vector>

namespace safeshuffle::comm {

/// One address of a network interface.
struct Interface {
  std::string name;
  std::string address;  ///< numeric
  bool is_ipv6 = false;
};

/// Those that are up, in the order of the system, without link-local IPv6 addresses and IPv6
/// loopback, which other hosts cannot use. Throws TransportError.
std::vector<Interface> usable_interfaces();

/// The first that `names` and `family` allow, in the syntax of NCCL_SOCKET_IFNAME (prefixes
/// separated by commas, which '=' before the list makes exact names and '^' before that excludes)
/// and NCCL_SOCKET_FAMILY (AF_INET or AF_INET6); anything else and empty texts allow all. Without
/// `names`, interfaces of InfiniBand go before others, and those of Docker, loopback and virtual
/// bridges come last. Pure. Throws ConfigError if there is none.
Interface choose_interface(std::vector<Interface> usable, const std::string& names,
                           const std::string& family);

}  // namespace safeshuffle::comm
