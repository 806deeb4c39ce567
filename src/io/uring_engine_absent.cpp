// What builds without liburing have of it.
#include "safeshuffle/error.hpp"

#include "io/uring_engine.hpp"

namespace safeshuffle::io {

std::unique_ptr<Engine> make_uring_engine(std::size_t, unsigned) {
  throw IoError("this safeshuffle was built without liburing");
}

}  // namespace safeshuffle::io
