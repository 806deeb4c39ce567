# Sourced by the scripts: where the project is, one line per step, and what mpirun needs as root.
# shellcheck shell=bash

# shellcheck disable=SC2034  # used by those who source this
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)

# Open MPI refuses root unless it is told twice; containers often run as root.
if [[ $(id -u) -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# Open MPI 4 does not start without a way to other nodes, unless it is told that there are none.
if ! command -v ssh >/dev/null && ! command -v rsh >/dev/null; then
  export OMPI_MCA_plm=isolated
fi

# die MESSAGE...: one line on stderr, exit 1.
die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# step LABEL COMMAND...: runs quietly and says how long it took; shows everything if it fails. A
# function run this way must chain its commands with &&, since `set -e` has no effect in a condition.
step() {
  local label=$1 start=$SECONDS log
  shift
  log=$(mktemp)
  printf '%-28s ' "$label"
  if "$@" >"$log" 2>&1 </dev/null; then
    printf '%4d s\n' $((SECONDS - start))
    rm -f -- "$log"
  else
    printf 'failed after %d s:\n' $((SECONDS - start))
    cat -- "$log"
    rm -f -- "$log"
    return 1
  fi
}
