// How MPI is found at run time.
#include "comm/mpi/mpi_library.hpp"

#include <dlfcn.h>

#include "support/catch.hpp"

using namespace safeshuffle;

TEST_CASE("MPI is loaded when it is first asked for", "[mpi library]") {
  REQUIRE(::dlsym(RTLD_DEFAULT, "MPI_Initialized") == nullptr);  // the program itself has none
  int initialised = -1;
  CHECK(comm::mpi().initialized(&initialised) == MPI_SUCCESS);
  CHECK(initialised == 0);
  CHECK(::dlsym(RTLD_DEFAULT, "MPI_Initialized") != nullptr);  // for Open MPI's plugins
}
