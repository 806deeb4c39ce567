// What is behind the handle of a group.
#pragma once

#include "safeshuffle/communicator.hpp"
#include "safeshuffle/safeshuffle.h"

struct safeshuffle_group {
  safeshuffle::Communicator comm;
};
