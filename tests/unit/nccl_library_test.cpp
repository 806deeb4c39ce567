// How NCCL is found at run time.
#include "comm/exchange/nccl_library.hpp"

#include <dlfcn.h>

#include "safeshuffle/error.hpp"

#include "comm/gpu_transport.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;

TEST_CASE("NCCL is loaded when it is first asked for", "[nccl library]") {
  REQUIRE(::dlsym(RTLD_DEFAULT, "ncclGetVersion") == nullptr);  // the program itself has none
  int version = 0;
  CHECK(comm::nccl().get_version(&version) == ncclSuccess);
  CHECK(version >= NCCL_VERSION(2, 19, 0));
  CHECK(comm::gpu_transport_obstacle().empty());
}

TEST_CASE("an NCCL that is too old is refused by its version", "[.][old nccl]") {
  const std::string cause = "NCCL 2.18.6 is too old: at least 2.19.0 is needed";
  CHECK(comm::gpu_transport_obstacle() == cause);
  CHECK_THROWS_AS(comm::nccl(), ConfigError);
}
