// What the library assumes about the machine it is built for.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <sys/types.h>

namespace safeshuffle {

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian, and is copied as it is");
static_assert(sizeof(std::size_t) == sizeof(std::uint64_t),
              "sizes from files are used as sizes in memory");
static_assert(sizeof(off_t) == sizeof(std::uint64_t), "files may be larger than 2 GiB");

}  // namespace safeshuffle
