#include "comm/control/interfaces.hpp"

#include <algorithm>
#include <cerrno>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <string_view>
#include <sys/socket.h>
#include <system_error>

#include "safeshuffle/error.hpp"

#include "core/text.hpp"

namespace safeshuffle::comm {
namespace {

bool remove_prefix(std::string_view& text, char prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(1);
  return true;
}

bool matches(std::string_view name, std::string_view list) {
  const bool excluded = remove_prefix(list, '^');
  const bool exact = remove_prefix(list, '=');
  bool listed = false;
  while (!list.empty()) {
    const std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(one.size() + 1, list.size()));
    listed |= !one.empty() && (exact ? name == one : name.starts_with(one));
  }
  return listed != excluded;
}

std::optional<Interface> first_match(const std::vector<Interface>& usable, std::string_view list) {
  const auto found = std::ranges::find_if(
      usable, [list](const Interface& one) { return matches(one.name, list); });
  return found == usable.end() ? std::nullopt : std::optional(*found);
}

/// Nothing for an address that other hosts cannot use.
std::optional<Interface> usable(const ifaddrs& entry) {
  const sockaddr* const address = entry.ifa_addr;
  if (address == nullptr || (entry.ifa_flags & IFF_UP) == 0) return {};
  const bool is_ipv6 = address->sa_family == AF_INET6;
  if (!is_ipv6 && address->sa_family != AF_INET) return {};
  if (is_ipv6) {
    const in6_addr& number = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LOOPBACK(&number) || IN6_IS_ADDR_LINKLOCAL(&number)) return {};
  }
  char text[NI_MAXHOST] = {};
  const socklen_t size = is_ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return Interface{entry.ifa_name, text, is_ipv6};
}

}  // namespace

std::vector<Interface> usable_interfaces() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    throw TransportError(ErrorRecord{
        .code = errno,
        .cause = "cannot list the network interfaces: " + std::generic_category().message(errno)});
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, &freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (auto one = usable(*entry)) found.push_back(std::move(*one));
  }
  return found;
}

Interface choose_interface(std::vector<Interface> usable, const std::string& names,
                           const std::string& family) {
  if (family == "AF_INET") std::erase_if(usable, [](const auto& one) { return one.is_ipv6; });
  if (family == "AF_INET6") std::erase_if(usable, [](const auto& one) { return !one.is_ipv6; });
  const std::vector<std::string> preferred{"ib", "^docker,lo,virbr", "docker", "lo", "virbr"};
  for (const std::string& list : names.empty() ? preferred : std::vector{names}) {
    if (auto found = first_match(usable, list)) return *found;
  }
  std::vector<std::string> present;
  for (const Interface& one : usable) present.push_back(one.name);
  throw ConfigError("no network interface that is up has NCCL_SOCKET_IFNAME '" + names +
                    "' and NCCL_SOCKET_FAMILY '" + family +
                    "'; there are: " + (present.empty() ? "none" : core::enumerate(present)));
}

}  // namespace safeshuffle::comm
