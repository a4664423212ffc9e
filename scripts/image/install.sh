#!/usr/bin/env bash
# Installs pushpull, MXNet and the examples into the root file system of an image:
#   scripts/image/install.sh ROOT
# The project must be built (scripts/setup.sh packages python product), for the Debian that the image has.
set -euo pipefail
root=$(realpath "$1")
cd "$(dirname "$0")/../.."

packages=$root/usr/local/lib/python3.11/dist-packages
mkdir -p "$packages" "$root/usr/local/bin" "$root/opt/pushpull"

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
wheel=$(.venv/bin/python scripts/wheel_backend.py "$wheels" | tail -1)
# The pinned line of each package that the image has.
sed -e '/^#/d' -e 's/.*/^&==/' scripts/image/python.txt | grep -i -f - scripts/requirements.txt >"$wheels/pins.txt"
wanted=$(grep -vc '^#' scripts/image/python.txt)
[ "$(wc -l <"$wheels/pins.txt")" = "$wanted" ] || {
  echo "pushpull: error: scripts/requirements.txt does not pin each of scripts/image/python.txt" >&2
  exit 1
}
.venv/bin/python -m pip install -q --disable-pip-version-check --retries 5 --no-deps --no-compile \
  --target "$packages" -r "$wheels/pins.txt"
rm -rf "$packages/bin"
.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-index --no-compile \
  --target "$packages" "$wheel"
mv "$packages/bin/pushpull" "$root/usr/local/bin/"
rm -rf "$packages/bin" "$packages/mxnet/include"
# Nobody runs their tests in the image.
find "$packages"/{numpy,scipy,sklearn} -depth -type d -name tests -exec rm -rf {} +
.venv/bin/python -m compileall -q -j 0 -s "$root" "$packages"
ln -sf /usr/bin/python3 "$root/usr/local/bin/python"
cp -r examples configs "$root/opt/pushpull/"
