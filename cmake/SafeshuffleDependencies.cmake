# safeshuffle_find(PACKAGE VERSION REPOSITORY COMMIT): the system's package. Where there is none, and SAFESHUFFLE_FETCH says
# so, as `pip install` does, its headers from that commit of its repository on GitHub.
include(FetchContent)

macro(safeshuffle_find package version repository commit)
  if(SAFESHUFFLE_FETCH)
    find_package(${package} ${version} QUIET)
  else()
    find_package(${package} ${version} REQUIRED)
  endif()
  if(NOT ${package}_FOUND)
    message(STATUS "safeshuffle: ${package} is not installed: fetching it")
    # Only its files, not what its own CMakeLists.txt would build.
    FetchContent_Declare(${package} URL https://github.com/${repository}/archive/${commit}.tar.gz
      DOWNLOAD_EXTRACT_TIMESTAMP ON SOURCE_SUBDIR none)
    FetchContent_MakeAvailable(${package})
    string(TOLOWER ${package} safeshuffle_fetched)
    set(safeshuffle_fetched ${${safeshuffle_fetched}_SOURCE_DIR})
    add_library(${package}_headers INTERFACE)
    target_include_directories(${package}_headers SYSTEM INTERFACE
      $<BUILD_INTERFACE:${safeshuffle_fetched}> $<BUILD_INTERFACE:${safeshuffle_fetched}/include>)
    add_library(${package}::${package} ALIAS ${package}_headers)
  endif()
endmacro()

safeshuffle_find(nlohmann_json 3.10 nlohmann/json 9cca280a4d0ccf0c08f47a99aa71d1b0e52f8d03)
safeshuffle_find(xxHash "" Cyan4973/xxHash bbb27a5efb85b92a0486cf361a8635715a53f6ba)
if(SAFESHUFFLE_APPS)
  safeshuffle_find(CLI11 "" CLIUtils/CLI11 6c7b07a878ad834957b98d0f9ce1dbe0cb204fc9)
  safeshuffle_find(fmt "" fmtlib/fmt e69e5f977d458f2650bb346dadf2ad30c5320281)
  if(TARGET fmt_headers)
    target_compile_definitions(fmt_headers INTERFACE FMT_HEADER_ONLY)
    add_library(fmt::fmt-header-only ALIAS fmt_headers)
  endif()
endif()
