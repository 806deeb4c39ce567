// An NCCL whose version is too old to be used.
#include <nccl.h>

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION(2, 18, 6);
  return ncclSuccess;
}
