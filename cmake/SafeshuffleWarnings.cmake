# safeshuffle_warnings(target): strict warnings, PRIVATE, so that neither dependencies nor consumers
# are held to them.
function(safeshuffle_warnings target)
  set(warnings
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
    -Wold-style-cast -Woverloaded-virtual -Wnull-dereference -Wdouble-promotion
    # GCC 12 takes "text" + string for overlapping or endless copies (its bug 105651).
    "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict;-Wno-stringop-overflow>"
    $<$<BOOL:${SAFESHUFFLE_WERROR}>:-Werror>)
  if(SAFESHUFFLE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's manual: the sanitizers' instrumentation makes these two warn of what is not there.
    list(APPEND warnings -Wno-maybe-uninitialized -Wno-null-dereference)
  endif()
  # The host code that nvcc generates is not clean under more than these.
  set(cuda_warnings -Xcompiler=-Wall,-Wextra $<$<BOOL:${SAFESHUFFLE_WERROR}>:-Werror=all-warnings>)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>" "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_warnings}>")
endfunction()
