#include "core/descriptor.hpp"

#include <unistd.h>

namespace safeshuffle::core {

Descriptor::~Descriptor() {
  if (*this) ::close(value_);
}

}  // namespace safeshuffle::core
