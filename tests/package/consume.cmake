# cmake -D SOURCE_DIR= -D WORK_DIR= -D CXX_COMPILER= -D GENERATOR= -D BUILD_TYPE= -D WERROR= -D UNITY=
#       [-D BUILD_DIR=] [-D COMMAND_INSTALLED=ON] -P consume.cmake
# Installs BUILD_DIR, or else a shared build of SOURCE_DIR, without CUDA and libcurl, made here, and uses the result.
# BUILD_TYPE, WERROR and UNITY are those of the build that is tested.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR}/prefix ${WORK_DIR}/moved ${WORK_DIR}/consumer)
set(common -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX_COMPILER})
if(NOT BUILD_DIR)
  set(BUILD_DIR ${WORK_DIR}/build)
  run(${CMAKE_COMMAND} ${common} -S ${SOURCE_DIR} -B ${BUILD_DIR} -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
      -DSAFESHUFFLE_WERROR=${WERROR} -DCMAKE_UNITY_BUILD=${UNITY} -DBUILD_SHARED_LIBS=ON -DSAFESHUFFLE_CUDA=OFF
      -DSAFESHUFFLE_CURL=OFF -DSAFESHUFFLE_APPS=ON -DSAFESHUFFLE_TESTS=OFF
      -DCMAKE_CXX_FLAGS_RELEASE=-O0)  # quickly
  run(${CMAKE_COMMAND} --build ${BUILD_DIR})
  execute_process(COMMAND ${BUILD_DIR}/bin/safeshuffle inspect s3://bucket/model ERROR_VARIABLE said)
  if(NOT said MATCHES "without libcurl, which URLs need")
    message(FATAL_ERROR "a build without libcurl says of a URL: ${said}")
  endif()
endif()
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)

# The package must not remember where it was installed.
file(RENAME ${WORK_DIR}/prefix ${WORK_DIR}/moved)
run(${CMAKE_COMMAND} ${common} -S ${SOURCE_DIR}/tests/package/consumer -B ${WORK_DIR}/consumer
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_PREFIX_PATH=${WORK_DIR}/moved
    -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON -DCMAKE_DISABLE_FIND_PACKAGE_xxHash=ON)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/consumer)
run(${WORK_DIR}/consumer/consumer ${WORK_DIR}/consumer/one.safetensors)
file(GLOB built_in RELATIVE ${SOURCE_DIR}/configs
  ${SOURCE_DIR}/configs/tp/*.json ${SOURCE_DIR}/configs/machines/*.json)
foreach(config IN LISTS built_in)
  run(${CMAKE_COMMAND} -E compare_files ${SOURCE_DIR}/configs/${config}
      ${WORK_DIR}/moved/share/safeshuffle/${config})
endforeach()
if(COMMAND_INSTALLED)
  run(${WORK_DIR}/moved/bin/safeshuffle inspect ${WORK_DIR}/consumer/one.safetensors)
  run(${WORK_DIR}/moved/bin/safeshuffle bench --list)
endif()
