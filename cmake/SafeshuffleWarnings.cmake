# safeshuffle_warnings(target): strict warnings, PRIVATE, so that neither dependencies nor consumers
# are held to them.
function(safeshuffle_warnings target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
    -Wold-style-cast -Woverloaded-virtual -Wnull-dereference -Wdouble-promotion
    # GCC 12 takes "text" + string for overlapping copies (its bug 105651).
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
    $<$<BOOL:${SAFESHUFFLE_WERROR}>:-Werror>)
  if(SAFESHUFFLE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's manual: the sanitizers' instrumentation makes these two warn of what is not there.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized -Wno-null-dereference)
  endif()
endfunction()
