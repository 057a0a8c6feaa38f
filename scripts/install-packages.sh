#!/bin/sh
# Installs the Debian packages that the build needs and that are missing. A second run changes nothing and needs neither
# the network nor root. Arguments are further packages.
set -eu

wanted="g++ cmake ninja-build llvm-19-dev llvm-19-tools zlib1g-dev libzstd-dev libyaml-cpp-dev libgtest-dev
  libgloo-dev ccache $*"

missing=
for package in $wanted; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  if [ "$status" != installed ]; then
    missing="$missing $package"
  fi
done
if [ -z "$missing" ]; then
  exit 0
fi

install="apt-get install -y --no-install-recommends$missing"
if ! command -v apt-get >/dev/null; then
  echo "error: not a Debian system; install what matches these Debian packages:$missing" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "error: Debian packages are missing, and only root can install them. Run, as root:" >&2
  echo "  apt-get update && $install" >&2
  exit 1
fi
echo "installing Debian packages:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
$install
