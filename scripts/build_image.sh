#!/usr/bin/env bash
# Builds the container image without a container tool and without an image registry, by debootstrap:
#   scripts/build_image.sh [-t NAME:TAG] [-o FILE.tar]
# The result equals what the Containerfile makes, as a file that `ctr -n k8s.io images import`, `podman load`
# or `docker load` takes. Needs root and Debian package debootstrap. Packages come from this machine's own
# apt source, or from MIRROR.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'pushpull: %s\n' "$*"; }
die() { printf 'pushpull: error: %s\n' "$*" >&2; exit 1; }

name=localhost/pushpull:latest
out=build/image/pushpull.tar
while getopts t:o: option; do
  case $option in
    t) name=$OPTARG ;;
    o) out=$OPTARG ;;
    *) die "usage: scripts/build_image.sh [-t NAME:TAG] [-o FILE.tar]" ;;
  esac
done
[ "$(id -u)" = 0 ] || die "debootstrap needs root"
command -v debootstrap >/dev/null || die "install Debian package debootstrap"

# The first source of Debian 12 that apt knows on this machine.
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' |
  awk '$2 == "bookworm" {print $1; exit}')}
[ -n "$mirror" ] || die "apt knows no source for Debian 12 (bookworm) here; set MIRROR to one"

mkdir -p "$(dirname "$out")"
scripts/setup.sh packages python product
root=$(mktemp -d "${TMPDIR:-/tmp}/pushpull-image.XXXXXX")
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

say "making a Debian 12 with what workers need"
include=$(grep -v '^#' scripts/image/packages.txt | paste -sd,)
debootstrap --variant=minbase --include="$include" bookworm "$root" "$mirror" >"$out.log" 2>&1 || {
  tail -5 "$out.log" >&2
  die "debootstrap failed; see $out.log"
}
say "installing MXNet, pushpull and the examples"
scripts/image/install.sh "$root"
chroot "$root" useradd --uid 1000 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin pushpull
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* \
  "$root"/usr/share/{doc,man,info,locale,i18n,lintian}/*

say "trying it: MXNet and pushpull import, as the image's user"
install -d -m 1777 "$root/dev/shm"  # where it is, joblib imports more
chroot --userspec=1000:1000 "$root" /usr/local/bin/python -c 'import mxnet, sklearn, pushpull.mxnet'

say "packing $out"
.venv/bin/python scripts/image/oci.py "$root" "$name" "$out"
say "$name is in $out ($(du -h "$out" | cut -f1)); import it on each node by
  ctr -n k8s.io images import $out"
