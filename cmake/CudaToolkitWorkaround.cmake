# To be included before find_package(CUDAToolkit), with safeshuffle_end_workaround() after it. CMake 3.25 to 3.27,
# asked for a project of 3.25 or newer, fails on toolkits without libnvToolsExt, as all from 13.0 on are: it marks a
# target as deprecated that it has not made. It does so for new projects only.
set(safeshuffle_minimum_cmake ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)

macro(safeshuffle_end_workaround)
  set(CMAKE_MINIMUM_REQUIRED_VERSION ${safeshuffle_minimum_cmake})
  unset(safeshuffle_minimum_cmake)
endmacro()
