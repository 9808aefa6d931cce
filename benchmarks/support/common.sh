# Sourced by the benchmarks' commands.
# shellcheck shell=bash
# shellcheck source=cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"
# shellcheck source=cmake/build.sh
source "$root/cmake/build.sh"

# benchmark TARGET ARGUMENT...: what is printed before the program starts goes to standard error, so that its
# own output can be kept as it is.
benchmark() {
  local target=$1
  shift
  export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-2000}  # as examples/quickstart says
  { setup runtime && build_release "$target"; } >&2
  "$build/benchmarks/$target" "$@"
}
