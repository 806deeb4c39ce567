# The project's switches. Backends are AUTO (use it if it is found), ON (fail if it is not) or OFF.
set(SAFESHUFFLE_MPI AUTO CACHE STRING "MPI transport: AUTO, ON or OFF")
set(SAFESHUFFLE_CUDA AUTO CACHE STRING "CUDA devices: AUTO, ON or OFF")
set(SAFESHUFFLE_NCCL AUTO CACHE STRING "NCCL transport, which needs CUDA: AUTO, ON or OFF")
set(SAFESHUFFLE_URING AUTO CACHE STRING "Reading with io_uring: AUTO, ON or OFF")
set(SAFESHUFFLE_CURL AUTO CACHE STRING "Reading from URLs, with libcurl: AUTO, ON or OFF")
set_property(CACHE SAFESHUFFLE_MPI SAFESHUFFLE_CUDA SAFESHUFFLE_NCCL SAFESHUFFLE_URING SAFESHUFFLE_CURL
  PROPERTY STRINGS AUTO ON OFF)
option(SAFESHUFFLE_APPS "Build the safeshuffle command and the examples" ${PROJECT_IS_TOP_LEVEL})
option(SAFESHUFFLE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(SAFESHUFFLE_WERROR "Treat warnings in safeshuffle's own targets as errors" ${PROJECT_IS_TOP_LEVEL})
option(SAFESHUFFLE_FETCH "Fetch the sources of libraries of headers that the system does not have" OFF)
set(SAFESHUFFLE_SANITIZE "" CACHE STRING "Sanitizers for everything built here, such as address,undefined")

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endif()

# For those who ask for CMAKE_UNITY_BUILD, as most presets do: a third of the compiler's time is left.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 22)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "safeshuffle needs GCC 12 or newer, or clang 14 or newer; "
                      "this is GCC ${CMAKE_CXX_COMPILER_VERSION}")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR "safeshuffle needs clang 14 or newer, or GCC 12 or newer; "
                      "this is clang ${CMAKE_CXX_COMPILER_VERSION}")
endif()

if(SAFESHUFFLE_SANITIZE)
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SAFESHUFFLE_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${SAFESHUFFLE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # This check needs descriptors of its own, and takes objects for invalid where a test has used all up.
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=vptr>")
  endif()
endif()

# safeshuffle_find_backend(NAME PACKAGE args...): resolves SAFESHUFFLE_<NAME> to
# SAFESHUFFLE_WITH_<NAME> and says what came of it.
macro(safeshuffle_find_backend name package)
  set(SAFESHUFFLE_WITH_${name} OFF)
  if(NOT "${SAFESHUFFLE_${name}}" STREQUAL "OFF")
    if("${SAFESHUFFLE_${name}}" STREQUAL "ON")
      find_package(${package} REQUIRED ${ARGN})
    else()
      find_package(${package} QUIET ${ARGN})
    endif()
    set(SAFESHUFFLE_WITH_${name} ${${package}_FOUND})
  endif()
  message(STATUS "safeshuffle: ${name} backend ${SAFESHUFFLE_${name}} -> ${SAFESHUFFLE_WITH_${name}}")
endmacro()
