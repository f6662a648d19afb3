# shellcheck shell=bash disable=SC2034  # JOBS is for the scripts that source this
# Sourced by demo.sh and test.sh. Brings the working directory to the root of the repository, installs what the build
# needs where it is missing (Debian 12 and its kin, as root or through sudo), and sets JOBS. Nothing is asked of apt when
# nothing is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s\n' "$*"; }

apt_install() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "missing: $*; install them, or run this as root" >&2; return 1; }
    as_root=(sudo)
  fi
  command -v apt-get >/dev/null || { echo "missing, and there is no apt-get to install them: $*" >&2; return 1; }
  say "Installing: $*"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Each package with the command or the file that shows that it is there; docs/dependencies.md says why each is needed.
install_build_packages() {
  local missing=() package probe
  while read -r package probe; do
    case "$probe" in
      /*) [ -e "$probe" ] || missing+=("$package") ;;
      *) command -v "$probe" >/dev/null || missing+=("$package") ;;
    esac
  done <<'PACKAGES'
g++ g++
cmake cmake
ninja-build ninja
ccache ccache
pkg-config pkg-config
llvm-19-dev llvm-config-19
liblmdb-dev /usr/include/lmdb.h
libxxhash-dev /usr/include/xxhash.h
libb2-dev /usr/include/blake2.h
libhiredis-dev /usr/include/hiredis/hiredis.h
libssl-dev /usr/include/openssl/ssl.h
openssl openssl
redis-tools redis-cli
libfmt-dev /usr/include/fmt/format.h
nlohmann-json3-dev /usr/include/nlohmann/json.hpp
libcli11-dev /usr/include/CLI/App.hpp
doctest-dev /usr/include/doctest/doctest.h
PACKAGES
  [ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"
}

# NVRTC, the CUDA compiler: the caller's, else a toolkit's, else NVIDIA's wheel in .cache/. Compiling for CUDA needs
# neither a GPU nor a toolkit. Without NVRTC everything but CUDA works.
provide_nvrtc() {
  [ -z "${KACHEL_NVRTC-}" ] || return 0
  local found folder wheel=nvidia-cuda-nvrtc
  for folder in /usr/local/cuda/lib64 /usr/local/cuda-*/lib64 .cache/nvrtc/nvidia/*/lib; do
    for found in "$folder"/libnvrtc.so.[0-9]*; do
      [ -e "$found" ] || continue
      KACHEL_NVRTC=$(realpath "$folder")
      export KACHEL_NVRTC
      return 0
    done
  done
  # A driver loads what its own CUDA version, or an older one, has compiled.
  if nvidia-smi 2>/dev/null | grep -q 'CUDA Version: 12'; then wheel=nvidia-cuda-nvrtc-cu12; fi
  say "Fetching NVRTC ($wheel from PyPI)"
  mkdir -p .cache
  if { python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip; } &&
    timeout 600 python3 -m pip install --quiet --disable-pip-version-check --no-deps --target .cache/nvrtc "$wheel" \
      2>.cache/nvrtc.log; then
    for found in "$PWD"/.cache/nvrtc/nvidia/*/lib/libnvrtc.so.[0-9]*; do
      KACHEL_NVRTC=$(dirname "$found")
      export KACHEL_NVRTC
    done
  else
    tail -n 3 .cache/nvrtc.log >&2 || true
    echo "NVRTC could not be had: CPU only. Set KACHEL_NVRTC to a folder with libnvrtc to change that." >&2
  fi
}

# As many compilers at once as there are cores and 1.5 GiB of memory each; KACHEL_JOBS overrides.
choose_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo)
  JOBS=${KACHEL_JOBS:-$((memory < cores ? (memory < 1 ? 1 : memory) : cores))}
}

install_build_packages
choose_jobs
