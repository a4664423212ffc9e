#!/usr/bin/env bash
# Installs the libraries that the benchmarks compare with and builds the programs that measure them.
#
#   bench/setup_peers.sh                 everything
#   bench/setup_peers.sh PEER...         some of: openmpi gloo horovod impi mpich oneccl torch
#   bench/setup_peers.sh programs        only compile bench/peers/, with what is installed
#
# All but the system packages lands in .cache/peers (or $BENCH_PEERS_DIR). A peer that cannot be
# had is not an error: its reason is kept in <peer>.reason, and bench/run.py prints it where it
# skips the peer. What is done is skipped on the next run.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${BENCH_PEERS_DIR:-$(dirname "$here")/.cache/peers}
mkdir -p "$peers/logs"

mxnet_packages=(numpy==1.23.5 requests graphviz==0.8.4 cffi cloudpickle psutil pyyaml packaging)
impi_packages=(impi-rt==2021.18.0 impi-devel==2021.18.0)
mpich_packages=(mpich==5.0.2)
oneccl_packages=(oneccl-cpu==2022.1.0 oneccl-devel==2022.1.0 "${impi_packages[@]}")

find_python() {
  local candidate
  for candidate in /usr/bin/python3.11 python3.11; do
    if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  echo "no Python 3.11 with venv was found; install python3-venv" >&2
  return 1
}

apt_install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}"
}

new_venv() {
  rm -rf "$1"
  local python
  python=$(find_python) && "$python" -m venv "$1"
}

# -- one function per peer; each runs in a subshell that stops at the first error -----------------

setup_openmpi() {
  apt_install libopenmpi-dev openmpi-bin g++ cmake
}

setup_gloo() {
  apt_install libgloo-dev libhiredis-dev g++ cmake
}

setup_torch() {
  apt_install python3-torch
  /usr/bin/python3 -c 'import torch.distributed as d; assert d.is_gloo_available()'
}

setup_pip_venv() { # DIRECTORY PACKAGES...
  local venv=$peers/$1
  new_venv "$venv"
  "$venv/bin/pip" install -q "${@:2}"
}

setup_impi() { setup_pip_venv impi "${impi_packages[@]}"; }
setup_mpich() { setup_pip_venv mpich "${mpich_packages[@]}"; }
setup_oneccl() { setup_pip_venv oneccl "${oneccl_packages[@]}"; }

# Horovod publishes no wheel: it is compiled here against MXNet's wheel, Open MPI and its own Gloo.
# Old setuptools and cmake, and <cstdint> everywhere, because the release predates current ones.
setup_horovod() {
  apt_install libopenmpi-dev openmpi-bin g++ libopenblas0
  local venv=$peers/horovod
  new_venv "$venv"
  local pip=$venv/bin/pip
  "$pip" install -q 'pip<24' wheel 'setuptools<70' 'cmake<3.28'
  "$pip" install -q --no-deps mxnet==1.9.1
  "$pip" install -q "${mxnet_packages[@]}"
  HOROVOD_WITH_MXNET=1 HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_TENSORFLOW=1 \
    HOROVOD_WITHOUT_PYTORCH=1 MAKEFLAGS=-j$(nproc) CXXFLAGS='-include cstdint' \
    PATH=$venv/bin:$PATH VIRTUAL_ENV=$venv \
    "$pip" wheel -q --no-build-isolation --no-deps --no-binary :all: -w "$peers/wheels" \
    horovod==0.28.1
  "$pip" install -q --no-deps "$peers"/wheels/horovod-0.28.1*.whl
  "$venv/bin/python" -c 'import horovod.mxnet as h; assert h.mpi_built() and h.gloo_built()'
}

setup_programs() {
  cmake --fresh -S "$here/peers" -B "$peers/build" -DCMAKE_BUILD_TYPE=Release \
    -DBENCH_PEERS_DIR="$peers" -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$peers/bin"
  cmake --build "$peers/build" --parallel 2 --target peers
}

# -------------------------------------------------------------------------------------------------

# What a finished peer was made from: when this text changes, it is made anew.
recipe() {
  case $1 in
    horovod) echo "horovod 0.28.1 mxnet 1.9.1 ${mxnet_packages[*]}" ;;
    impi) echo "${impi_packages[*]}" ;;
    mpich) echo "${mpich_packages[*]}" ;;
    oneccl) echo "${oneccl_packages[*]}" ;;
    *) echo "distribution's packages" ;;
  esac
}

set_up() {
  local peer=$1 log=$peers/logs/$1.log started=$SECONDS
  [ "$peer" != programs ] && [ "$(cat "$peers/$peer.ready" 2>/dev/null)" = "$(recipe "$peer")" ] &&
    return
  echo "bench: setting up $peer (log: $log)"
  (set -e; "setup_$peer") >"$log" 2>&1 </dev/null
  local status=$?
  if [ $status -eq 0 ]; then
    rm -f "$peers/$peer.reason"
    [ "$peer" = programs ] || recipe "$peer" >"$peers/$peer.ready"
    echo "bench: $peer is ready after $((SECONDS - started)) s"
  else
    rm -f "$peers/$peer.ready"
    local reason
    reason="its set-up failed: $(grep -v '^ *$' "$log" | tail -n 1 | cut -c1-200)"
    echo "$reason" >"$peers/$peer.reason"
    echo "bench: $peer cannot be had: $reason"
  fi
}

known=(openmpi gloo horovod impi mpich oneccl torch)
wanted=("$@")
[ ${#wanted[@]} -eq 0 ] && wanted=("${known[@]}")
for peer in "${wanted[@]}"; do
  if [ "$peer" != programs ] && [[ " ${known[*]} " != *" $peer "* ]]; then
    echo "bench: unknown peer '$peer'; known are: ${known[*]} programs" >&2
    exit 2
  fi
done
for peer in "${wanted[@]}"; do
  [ "$peer" = programs ] || set_up "$peer"
done
set_up programs
[ ! -e "$peers/programs.reason" ]
