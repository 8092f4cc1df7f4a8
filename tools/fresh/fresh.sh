#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command as on a machine that has nothing but Debian's base system, Go, make and git, and on which all
# mounts are shared, as with systemd. Nothing that was installed by hand is there, and no mount comes back.
#
#   fresh.sh FOLDER COMMAND...      e.g. fresh.sh . make unit
#
# FOLDER is a clone; the command runs in it. It shares Go's caches with this machine. It needs root, and Debian with
# debootstrap. FRESH_ROOT keeps the base system (default /var/tmp/gpu-dra-fresh, 350 MB, made once); each run has
# a copy.
set -euo pipefail
if [ $# -lt 2 ]; then sed -n 4,12p "$0" >&2; exit 2; fi
clone=$(readlink -f "$1"); shift
base=${FRESH_ROOT:-/var/tmp/gpu-dra-fresh}

if [ ! -e "$base/done" ]; then
  command -v debootstrap >/dev/null || { echo 'This needs debootstrap.
  sudo apt-get install --no-install-recommends debootstrap' >&2; exit 1; }
  # shellcheck disable=SC1091
  . /etc/os-release
  # The mirror of this machine, or the one that debootstrap knows.
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE '[a-z]+://[^ ]+/debian/?( |$)' | head -n 1 || true)
  rm -rf "$base"; mkdir -p "$base"
  # shellcheck disable=SC2086
  debootstrap --variant=minbase --include=ca-certificates,git,make "$VERSION_CODENAME" "$base/root" $mirror >"$base/log" 2>&1 || { tail -n 3 "$base/log" >&2; exit 1; }
  touch "$base/done"
fi

run=$(mktemp -d "$base-run.XXXXXX")
trap 'rm -rf --one-file-system "$run"' EXIT
cp -a "$base/root" "$run/root"
etc=$run/root/etc
mkdir -p "$etc/apt" "$etc/ssl/certs"
cp -L /etc/resolv.conf /etc/hosts "$etc/"
rm -rf "$etc/apt/sources.list" "$etc/apt/sources.list.d"
for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d; do
  if [ -e "$file" ]; then cp -a "$file" "$etc/apt/"; fi
done
cp -a /etc/ssl/certs/. "$etc/ssl/certs/"
if [ -d /usr/local/share/ca-certificates ]; then
  mkdir -p "$run/root/usr/local/share"; cp -a /usr/local/share/ca-certificates "$run/root/usr/local/share/"
fi
goroot=$(go env GOROOT); goenv=$(go env GOENV)
if [ -f "$goenv" ]; then mkdir -p "$(dirname "$run/root$goenv")"; cp "$goenv" "$run/root$goenv"; fi

# The mounts end with the namespace.
# shellcheck disable=SC2016
FRESH=$run/root FRESH_CLONE=$clone FRESH_PATH=$goroot/bin FRESH_GO="$goroot $(go env GOMODCACHE) $(go env GOCACHE)" \
  unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -e
    mount --bind "$FRESH" "$FRESH"; cd "$FRESH"
    for folder in $FRESH_GO; do mkdir -p ".$folder"; mount --bind "$folder" ".$folder"; done
    mkdir -p src/clone old; mount --bind "$FRESH_CLONE" src/clone
    mount --rbind /dev dev; mount --rbind /sys sys; mount -t proc proc proc
    mount -t tmpfs tmpfs run; mount -t tmpfs tmpfs tmp -o mode=1777
    pivot_root . old; hash -r; umount -l /old; rmdir /old; mount --make-rshared /
    cd /src/clone; git config --global --add safe.directory "*"
    exec env -i HOME=/root USER=root TERM="${TERM:-dumb}" LANG=C.UTF-8 CI="${CI:-}" \
      PATH="$FRESH_PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" "$@"' fresh "$@"
