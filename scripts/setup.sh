#!/usr/bin/env bash
# Sets everything up, skipping what is done:
#   scripts/setup.sh [packages] [python] [product | build] [install]     default: all, in this order
# packages: Debian packages from packages.txt (or the list that PUSHPULL_PACKAGES names) · python: .venv from requirements.txt
# product: build/release by CMake · build: that and the tests
# install: the Python package and the `pushpull` command into .venv
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'pushpull: %s\n' "$*"; }
die() { printf 'pushpull: error: %s\n' "$*" >&2; exit 1; }

# quietly LOG COMMAND…: what the command says goes to LOG, and is shown where it fails.
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 && return
  cat "$log" >&2
  return 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; return; fi
  command -v sudo >/dev/null || die "installing packages needs root or sudo: $*"
  sudo "$@"
}

missing_packages() {
  local package
  while read -r package _; do
    case $package in '' | '#'*) continue ;; esac
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
      printf '%s\n' "$package"
  done < "${PUSHPULL_PACKAGES:-scripts/packages.txt}"
}

packages() {
  command -v dpkg-query >/dev/null || die "this set-up is for Debian 12; elsewhere install what \
scripts/packages.txt lists and run scripts/setup.sh python product install"
  local -a missing
  mapfile -t missing < <(missing_packages)
  if [ ${#missing[@]} = 0 ]; then say "system packages are there"; return; fi
  say "installing ${#missing[@]} system packages by apt: ${missing[*]}"
  local -a apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120)
  quietly build/apt.log as_root "${apt[@]}" update ||
    die "apt-get update failed; is a package mirror reachable?"
  quietly build/apt.log as_root "${apt[@]}" install -y --no-install-recommends "${missing[@]}" ||
    die "apt-get could not install the packages above"
}

find_python() {
  local candidate
  for candidate in /usr/bin/python3.11 python3.11 /usr/bin/python3 python3; do
    if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info[:2] != (3, 11))' \
      2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  die "no Python 3.11 with the venv module found; install python3.11 and python3-venv"
}

python() {
  if [ -x .venv/bin/python ] && cmp -s scripts/requirements.txt .venv/requirements.txt; then
    say "Python environment .venv is there"
    return
  fi
  local base
  base=$(find_python)
  say "making the Python environment .venv with mxnet 1.9.1 and numpy 1.23.5"
  .venv/bin/python -c '' 2>/dev/null || "$base" -m venv --clear .venv
  .venv/bin/python -m pip install -q --disable-pip-version-check --retries 5 --no-deps \
    -r scripts/requirements.txt || die "pip could not install scripts/requirements.txt"
  .venv/bin/python -m pip check -q >/dev/null ||
    die "the packages of scripts/requirements.txt do not fit together: run .venv/bin/pip check"
  cp scripts/requirements.txt .venv/requirements.txt
}

# compile TARGET WHAT
compile() {
  if [ ! -f build/release/build.ninja ]; then
    say "configuring build/release"
    quietly build/configure.log cmake --preset release || die "cmake could not configure"
  fi
  if ninja -C build/release -n "$1" 2>/dev/null | grep -q 'no work to do'; then
    say "$2 in build/release are up to date"
    return
  fi
  say "building $2 in build/release (some minutes the first time)"
  local -a silence=()
  [ -t 1 ] || silence=(--quiet)  # one line that moves on a terminal, hundreds elsewhere
  ninja -C build/release "${silence[@]}" "$1"
}

product() { compile product "library, backends and command"; }
build() { compile all "library, backends, command and tests"; }

install_package() {
  local installed=.venv/pushpull-installed
  if [ -f "$installed" ] && [ -z "$(find build/release/lib build/release/bin/pushpull \
    mxnet_binding/python pyproject.toml scripts/wheel_backend.py \
    -name __pycache__ -prune -o -type f -newer "$installed" -print -quit 2>/dev/null)" ]; then
    say "package and command in .venv are up to date"
    return
  fi
  say "installing the Python package and the pushpull command into .venv"
  touch "$installed.new"
  .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-index \
    --no-build-isolation --force-reinstall . || die "pip could not install the package"
  mv "$installed.new" "$installed"
}

mkdir -p build
for step in "${@:-all}"; do
  case $step in
    all) packages; python; build; install_package ;;
    packages | python | product | build) "$step" ;;
    install) install_package ;;
    *) die "unknown step '$step'; known are packages, python, product, build, install" ;;
  esac
done
