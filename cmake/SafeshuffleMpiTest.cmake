# safeshuffle_add_mpi_test(name target np... [ARGS args...] [TIMEOUT seconds]): runs the program `target`
# under mpirun, once per number of processes, as tests `name-np<np>` with the label mpi.
set(SAFESHUFFLE_MPI_TEST_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1  # more ranks than cores ...
  OMPI_MCA_mpi_yield_when_idle=1       # ... that let each other run
  PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe)  # the same for Open MPI 5

function(safeshuffle_add_mpi_test name target)
  cmake_parse_arguments(arg "" "TIMEOUT" "ARGS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  foreach(np IN LISTS arg_UNPARSED_ARGUMENTS)
    add_test(NAME ${name}-np${np}
      COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${np} $<TARGET_FILE:${target}> ${arg_ARGS})
    set_tests_properties(${name}-np${np} PROPERTIES
      LABELS mpi TIMEOUT ${arg_TIMEOUT} PROCESSORS ${np}
      ENVIRONMENT "${SAFESHUFFLE_MPI_TEST_ENVIRONMENT}")
  endforeach()
endfunction()
