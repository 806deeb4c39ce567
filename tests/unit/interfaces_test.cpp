// comm: which network interface is chosen, from lists of invented ones.
#include "comm/control/interfaces.hpp"

#include "safeshuffle/error.hpp"

#include "support/catch.hpp"

using namespace safeshuffle;

namespace {

const std::vector<comm::Interface> node{{"lo", "127.0.0.1"},         {"docker0", "172.17.0.1"},
                                        {"virbr0", "192.168.122.1"}, {"eth0", "10.0.0.1"},
                                        {"eth1", "10.1.0.1"},        {"ens10", "10.2.0.1"},
                                        {"eth0", "fd00::1", true}};

std::string chosen(const std::string& names, const std::string& family = "") {
  return comm::choose_interface(node, names, family).address;
}

std::string chosen_from(const std::vector<comm::Interface>& usable) {
  return comm::choose_interface(usable, "", "").name;
}

}  // namespace

TEST_CASE("NCCL_SOCKET_IFNAME selects as NCCL documents it", "[interfaces]") {
  CHECK(chosen("eth") == "10.0.0.1");
  CHECK(chosen("eth1") == "10.1.0.1");
  CHECK(chosen("=eth1") == "10.1.0.1");
  CHECK(chosen("=eth,eth1,") == "10.1.0.1");
  CHECK(chosen("wlan,ens") == "10.2.0.1");
  CHECK(chosen("^lo,docker,virbr,eth") == "10.2.0.1");
  CHECK(chosen("^=lo,docker,virbr0") == "172.17.0.1");
  CHECK(chosen("lo") == "127.0.0.1");
  CHECK(chosen("docker") == "172.17.0.1");
}

TEST_CASE("NCCL_SOCKET_FAMILY selects the family", "[interfaces]") {
  CHECK(chosen("", "AF_INET6") == "fd00::1");
  CHECK(chosen("eth", "AF_INET6") == "fd00::1");
  CHECK(chosen("", "AF_INET") == "10.0.0.1");
  CHECK_THROWS_AS(chosen("eth1", "AF_INET6"), ConfigError);
}

TEST_CASE("by default InfiniBand comes first, loopback and virtual networks last", "[interfaces]") {
  CHECK(chosen("") == "10.0.0.1");
  CHECK(chosen_from({node[0], node[1], node[2], node[3], {"ib0", "10.3.0.1"}}) == "ib0");
  CHECK(chosen_from({node[0], node[1], node[2]}) == "docker0");
  CHECK(chosen_from({node[2], node[0]}) == "lo");
  CHECK(chosen_from({node[2]}) == "virbr0");
}

TEST_CASE("without a matching interface the error lists those that are up", "[interfaces]") {
  try {
    chosen("=eth");
    FAIL("no exception");
  } catch (const ConfigError& error) {
    CHECK(error.record().cause.find("NCCL_SOCKET_IFNAME '=eth'") != std::string::npos);
    CHECK(error.record().cause.find("lo, docker0, virbr0, eth0") != std::string::npos);
  }
  CHECK_THROWS_AS(chosen_from({}), ConfigError);
}

TEST_CASE("this machine has an interface that other processes can connect to", "[interfaces]") {
  CHECK_FALSE(comm::choose_interface(comm::usable_interfaces(), "", "").address.empty());
}
