// In place of pack_rig_cuda.cpp where there is no CUDA to build it with.
#include <stdexcept>

#include "bench/pack_rig.hpp"

namespace safeshuffle::bench {

std::unique_ptr<PackRig> make_cuda_rig(std::uint64_t) {
  throw std::runtime_error("built without CUDA");
}

}  // namespace safeshuffle::bench
