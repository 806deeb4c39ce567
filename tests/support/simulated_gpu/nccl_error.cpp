#include "support/simulated_gpu/nccl_error.hpp"

#include <mutex>

namespace simulated_gpu {
namespace {

struct LastError {
  std::mutex mutex;
  std::string text;
};

// Never destroyed: streams may still work while the process exits.
LastError& last() {
  static auto* const error = new LastError;
  return *error;
}

}  // namespace

ncclResult_t remember(const NcclFailure& failure) {
  const std::scoped_lock lock(last().mutex);
  last().text = failure.text;
  return failure.code;
}

std::string last_nccl_error() {
  const std::scoped_lock lock(last().mutex);
  return last().text;
}

}  // namespace simulated_gpu
