# Install rules and the CMake package: find_package(safeshuffle), then safeshuffle::safeshuffle.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/safeshuffle)

set_target_properties(safeshuffle PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

set(libraries safeshuffle safeshuffle_c)
if(SAFESHUFFLE_WITH_MPI)
  list(APPEND libraries safeshuffle_mpi)
endif()
install(TARGETS ${libraries} EXPORT safeshuffleTargets
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/safeshuffle
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h"
  PATTERN mpi.hpp EXCLUDE PATTERN nccl.hpp EXCLUDE)
foreach(interop IN ITEMS MPI NCCL)
  if(SAFESHUFFLE_WITH_${interop})
    string(TOLOWER ${interop} header)
    install(FILES ${PROJECT_SOURCE_DIR}/include/safeshuffle/${header}.hpp
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/safeshuffle)
  endif()
endforeach()

# To read and to start from; the library has its own copy inside.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/tp ${PROJECT_SOURCE_DIR}/configs/machines
  DESTINATION ${CMAKE_INSTALL_DATADIR}/safeshuffle FILES_MATCHING PATTERN "*.json")

if(TARGET safeshuffle_command)
  # Found beside the command, wherever the whole tree is moved to.
  set_target_properties(safeshuffle_command PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
  install(TARGETS safeshuffle_command)
  # What `safeshuffle bench` runs.
  set(libexec ${CMAKE_INSTALL_LIBEXECDIR}/safeshuffle)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/scripts/bench DESTINATION ${libexec}/scripts)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/scripts/lib DESTINATION ${libexec}/scripts
    FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/experiments DESTINATION ${libexec}/configs
    FILES_MATCHING PATTERN "*.json")
endif()

# What the Python package has of it: by their plain names, because a wheel has no links.
if(TARGET safeshuffle_command)
  install(PROGRAMS $<TARGET_FILE:safeshuffle_c> RENAME libsafeshuffle_c.so DESTINATION safeshuffle
    COMPONENT python EXCLUDE_FROM_ALL)
  install(PROGRAMS $<TARGET_FILE:safeshuffle_command> DESTINATION safeshuffle/bin COMPONENT python EXCLUDE_FROM_ALL)
  if(SAFESHUFFLE_WITH_MPI)
    install(PROGRAMS $<TARGET_FILE:safeshuffle_mpi> DESTINATION safeshuffle COMPONENT python EXCLUDE_FROM_ALL)
  endif()
endif()

install(EXPORT safeshuffleTargets NAMESPACE safeshuffle:: DESTINATION ${package_dir})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/safeshuffleConfig.cmake.in
  ${PROJECT_BINARY_DIR}/safeshuffleConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor release may break its users.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/safeshuffleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/safeshuffleConfig.cmake
  ${PROJECT_BINARY_DIR}/safeshuffleConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/CudaToolkitWorkaround.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindUring.cmake
  DESTINATION ${package_dir})
