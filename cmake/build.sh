# Configures and builds the one build that examples/quickstart and tests/run share; sourced after setup.sh.
# shellcheck shell=bash disable=SC2154  # root, deps, torch_library come from setup.sh

# build_folder VERSION: where what is built with that torch lies.
build_folder() {
  if [[ $1 == "${torch_versions[0]}" ]]; then printf '%s\n' "$root/build/release"; else printf '%s\n' "$root/build/torch-$1"; fi
}
build=$(build_folder "$torch_version")

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" 2>/dev/null || true; }

# ninja runs CMake again when a CMake file changed, so this configures only a new build folder, a moved
# checkout or one whose LibTorch changed.
configure_release() {
  local fresh=()
  [[ -f $build/build.ninja && $(cached CMAKE_HOME_DIRECTORY) == "$root" &&
     $(cached DTK_TORCH_CPU) == "$torch_library" ]] && return
  say "configuring $build (seconds)"
  [[ ! -f $build/CMakeCache.txt || $(cached CMAKE_HOME_DIRECTORY) == "$root" ]] || fresh=(--fresh)
  (cd "$root" && cmake --preset release -B "$build" ${fresh[@]+"${fresh[@]}"} \
    "-DTORCH_PREFIX=${torch_library%/lib/*}" "-DDTK_TORCH_CPU=$torch_library")
}

# One compiler for each core, and no more than fit in memory: twelve files of the toolkit at a time take up to 1.5 GB.
build_jobs() {
  local cores gib
  cores=$(nproc 2>/dev/null || echo 1)
  gib=$(awk '/^MemAvailable:/ { printf "%d", $2 / 1500000 }' /proc/meminfo 2>/dev/null || true)
  if [[ -n $gib && $gib -lt $cores ]]; then cores=$gib; fi
  if [[ $cores -lt 1 ]]; then cores=1; fi
  printf '%s\n' "$cores"
}

# build_release TARGET...; "all" is one.
build_release() {
  mkdir -p "$root/build"
  hold_lock "$root/build/lock" build  # two at once would write the same files
  configure_release
  [[ -e $build/.ninja_log ]] || say "building $* (the first time this takes minutes, with few cores many)"
  # Nothing is written outside the checkout; what is compiled serves other checkouts too.
  export CCACHE_DIR=${CCACHE_DIR:-$deps/ccache} CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=true
  export CCACHE_SLOPPINESS=pch_defines,time_macros  # else nothing that reads a precompiled header is kept
  ninja -C "$build" -j "$(build_jobs)" "$@"
  release_lock
}
