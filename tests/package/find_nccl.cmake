# NCCL is found in the layouts that FindNCCL.cmake names. What lies in them here are empty libraries and headers
# with a version; nothing is linked.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK_DIR})

# lay_out(ROOT VERSION LIBRARY): as if that version were installed there.
function(lay_out root version library)
  string(REPLACE "." ";" parts ${version})
  list(GET parts 0 major)
  list(GET parts 1 minor)
  list(GET parts 2 patch)
  file(WRITE ${WORK_DIR}/${root}/include/nccl.h
    "#define NCCL_MAJOR ${major}\n#define NCCL_MINOR ${minor}\n#define NCCL_PATCH ${patch}\n")
  file(WRITE ${WORK_DIR}/${root}/${library} "")
endfunction()

# check(NAME EXPECTED VARIABLES...): whether configuring with these prints what is expected.
function(check name expected)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build-${name} -D MODULE_DIR=${MODULE_DIR} ${ARGN}
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT output MATCHES "${expected}")
    message(SEND_ERROR "${name}: no '${expected}' in\n${output}")
  endif()
endfunction()

set(wheel ${WORK_DIR}/site-packages/nvidia/nccl)
lay_out(site-packages/nvidia/nccl 2.28.9 lib/libnccl.so.2)
lay_out(image 2.27.7 lib64/libnccl.so)
lay_out(old 2.18.6 lib/libnccl.so)

check(wheel "found 2.28.9 ${wheel}/lib/libnccl.so.2 ${wheel}/include" -D NCCL_ROOT=${wheel})
check(image "found 2.27.7 ${WORK_DIR}/image/lib64/libnccl.so ${WORK_DIR}/image/include"
  -D NCCL_ROOT=${WORK_DIR}/image)
# A wheel that is asked for wins over what a later directory has under the name without the version.
check(wheel-and-image "found 2.28.9 ${wheel}/lib/libnccl.so.2"
  -D NCCL_ROOT=${wheel} -D CMAKE_PREFIX_PATH=${WORK_DIR}/image)
check(too-old "Found unsuitable version \"2.18.6\"" -D NCCL_ROOT=${WORK_DIR}/old)
set(ENV{NCCL_HOME} ${wheel})
check(home "found 2.28.9 ${wheel}/lib/libnccl.so.2")
