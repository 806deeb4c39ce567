# Helpers for tests. Needs FindMPI's variables where MPI is used.

# What mpirun and the programs under it need in their environment. Open MPI refuses root unless it is
# told twice; containers often run as root.
# AddressSanitizer must unwind with care: MPI's libraries keep no frame pointers, and suppressions need
# the names in the stack. It must not follow dynamic thread-local memory: before LLVM 17 it takes some of it for that
# of glibc 2.19 and LeakSanitizer reads from a garbage address (https://github.com/google/sanitizers/issues/1322).
# Ranks that wait within MPI give way to other tests.
# The tests of the host device use it also where there are GPUs.
set(SAFESHUFFLE_TEST_ENVIRONMENT
  "CUDA_VISIBLE_DEVICES="
  "OMPI_MCA_mpi_yield_when_idle=1"
  "ASAN_OPTIONS=fast_unwind_on_malloc=0:intercept_tls_get_addr=0"
  "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0"
  "UBSAN_OPTIONS=print_stacktrace=1")
execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
if(user STREQUAL "0")
  list(APPEND SAFESHUFFLE_TEST_ENVIRONMENT OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
endif()

if(SAFESHUFFLE_WITH_MPI)
  execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE mpiexec_version ERROR_QUIET)
  set(SAFESHUFFLE_MPIEXEC_FLAGS "")
  if(mpiexec_version MATCHES "Open MPI|OpenRTE|PRRTE")
    # Left to itself, Open MPI gives each of one or two ranks a single core for all of its threads.
    set(SAFESHUFFLE_MPIEXEC_FLAGS --oversubscribe --bind-to none)
  endif()
  # For the tests in Python.
  list(JOIN SAFESHUFFLE_MPIEXEC_FLAGS " " flags)
  set(SAFESHUFFLE_MPIEXEC "${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} {ranks} ${flags}")
endif()

# safeshuffle_describe_command(variable TARGET [WRAPPER]): the environment of a test in Python that runs the
# command, on several ranks by MPI or by itself. The wrapper is a program that becomes the command. No probe that the
# user keeps of this machine changes its plans.
function(safeshuffle_describe_command variable target)
  set(${variable} PYTHONDONTWRITEBYTECODE=1 "XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/no-cache"
    "SAFESHUFFLE=$<TARGET_FILE:${target}>" "MPIEXEC=${SAFESHUFFLE_MPIEXEC} ${ARGV2}" "RANK_WRAPPER=${ARGV2}" PARENT_SCOPE)
endfunction()

# safeshuffle_scale_timeout(variable seconds): three times as long with sanitizers, under which most tests take two to
# five times as long, and those of code that is not optimised up to thirty times.
function(safeshuffle_scale_timeout variable seconds)
  if(SAFESHUFFLE_SANITIZE)
    math(EXPR seconds "3 * ${seconds}")
  endif()
  set(${variable} ${seconds} PARENT_SCOPE)
endfunction()

# COST: what takes long begins first; where nothing has been measured yet, seconds by estimate.
# safeshuffle_add_mpi_test(name NP n TIMEOUT seconds LABELS labels... COMMAND command...): runs the
# command on n ranks. Open MPI ends all ranks itself shortly before ctest would end mpirun alone.
function(safeshuffle_add_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NP;TIMEOUT" "LABELS;COMMAND")
  set(launch ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${arg_NP} ${SAFESHUFFLE_MPIEXEC_FLAGS})
  safeshuffle_scale_timeout(arg_TIMEOUT ${arg_TIMEOUT})
  if(SAFESHUFFLE_MPIEXEC_FLAGS)
    math(EXPR rank_timeout "${arg_TIMEOUT} - 5")
    list(APPEND launch --timeout ${rank_timeout})
  endif()
  add_test(NAME ${name} COMMAND ${launch} ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} COST ${arg_NP}0
    ENVIRONMENT "${SAFESHUFFLE_TEST_ENVIRONMENT}")
endfunction()
