# Finds DLPack's header. Defines DLPack::DLPack.
find_path(DLPack_INCLUDE_DIR NAMES dlpack/dlpack.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DLPack REQUIRED_VARS DLPack_INCLUDE_DIR)
mark_as_advanced(DLPack_INCLUDE_DIR)
if(DLPack_FOUND AND NOT TARGET DLPack::DLPack)
  add_library(DLPack::DLPack INTERFACE IMPORTED)
  set_target_properties(DLPack::DLPack PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${DLPack_INCLUDE_DIR}")
endif()
