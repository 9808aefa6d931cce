# Sourced by the benchmarks' commands.
# shellcheck shell=bash
# shellcheck source=cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"
# shellcheck source=cmake/build.sh
source "$root/cmake/build.sh"

# setup_wheels NAME SIZE WHEEL...: wheels that only one benchmark needs, in $packages, which is .deps/NAME.
setup_wheels() {
  local size=$2
  packages=$deps/$1
  shift 2
  [[ -f $packages/done && $(<"$packages/done") == "$*" ]] && return
  say "installing $* (about $size to download; seconds)"
  rm -rf "$packages"
  pip_install --no-deps --target "$packages" "$@"
  printf '%s' "$*" >"$packages/done"
}

# benchmark TARGET ARGUMENT...: what is printed before the program starts goes to standard error, so that its
# own output can be kept as it is.
benchmark() {
  local target=$1
  shift
  export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-2000}  # as examples/quickstart says
  { setup runtime && build_release "$target"; } >&2
  "$build/benchmarks/$target" "$@"
}
