# What the quickstarts share: their options, and the folder of their run. Sourced by a command that has a function
# usage and says what `command` it is and what `seconds` is by default.
# shellcheck shell=bash disable=SC2154  # command comes from the sourcing file, root from cmake/setup.sh

usage_error() {
  printf '%s: %s\n\n' "$command" "$1" >&2
  usage >&2
  exit 2
}

# Sets seconds, seed and out as the arguments say.
read_options() {
  out=
  seed=0
  while [[ $# -gt 0 ]]; do
    case $1 in
      --help | -h) usage; exit 0 ;;
      --seconds | --seed | --out) [[ $# -ge 2 ]] || usage_error "$1 needs a value" ;;&
      --seconds) seconds=$2; shift 2 ;;
      --seed) seed=$2; shift 2 ;;
      --out) out=$2; shift 2 ;;
      *) usage_error "unknown argument: $1" ;;
    esac
  done
  [[ $seconds =~ ^[0-9]+([.][0-9]+)?$ && $seconds =~ [1-9] ]] ||
    usage_error "--seconds $seconds: give seconds above 0 in digits, such as 300"
  [[ $seed =~ ^(0|[1-9][0-9]{0,8})$ ]] || usage_error "--seed $seed: give a whole number of up to nine digits"
  [[ -z $out ]] || check_out "$out"
}

# As dit-train would say after all the rest.
check_out() {
  [[ -e $1 ]] || return 0
  [[ -d $1 ]] || usage_error "--out $1: not a folder; name a new one"
  [[ -z $(find "$1/checkpoints" -mindepth 1 -maxdepth 1 -name 'step-*' 2>/dev/null) ]] ||
    usage_error "--out $1: holds a run already; name a new folder"
  [[ -z $(ls -A "$1") || -e $1/config.toml || -e $1/checkpoints || -e $1/lock ]] ||
    usage_error "--out $1: holds other things than a run; name a new or an empty folder"
}

first_free_run() {
  local number=1
  while [[ -e $root/runs/$1-$number ]]; do number=$((number + 1)); done
  printf '%s\n' "$root/runs/$1-$number"
}

# OpenMP threads that wait for each other give up the core sooner than by default: no slower on a quiet
# machine, and on a busy one the thread they wait for gets to run.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-2000}
