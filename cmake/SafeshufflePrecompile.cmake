# safeshuffle_precompile(target HEADER...): parses these, and what nearly every source includes of the standard
# library, once. Only with clang: GCC gains little by it, and so shows what a source forgets to include; compiler caches
# do better without.
function(safeshuffle_precompile target)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_precompile_headers(${target} PRIVATE
      <algorithm> <chrono> <filesystem> <functional> <map> <memory> <optional> <span> <string> <utility> <vector>
      ${ARGN})
  endif()
endfunction()
