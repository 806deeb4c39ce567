# Finds NCCL, as Debian, CUDA images and Python wheels (nvidia/nccl) lay it out: NCCL_ROOT or
# NCCL_HOME name a directory with include/nccl.h and lib/libnccl.so.2; otherwise the CUDA toolkit and
# the system are searched. Defines NCCL::NCCL, NCCL::headers for those who look the library up at run time,
# and NCCL_VERSION.
set(hints ENV NCCL_HOME)
if(CUDAToolkit_FOUND)
  list(APPEND hints ${CUDAToolkit_INCLUDE_DIRS}/.. ${CUDAToolkit_LIBRARY_ROOT})
endif()
find_path(NCCL_INCLUDE_DIR NAMES nccl.h HINTS ${hints} PATH_SUFFIXES include)
# Wheels have only the name with the version; it must not lose to another one's nccl of a later directory.
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${hints} PATH_SUFFIXES lib lib64)
unset(hints)

unset(NCCL_VERSION)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX MATCHALL "[0-9]+" NCCL_VERSION "${lines}")
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::headers INTERFACE IMPORTED)
  set_target_properties(NCCL::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
