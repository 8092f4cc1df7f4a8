#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the travelling node on a simulated machine that has nothing: empty-root.sh FOLDER ARGUMENTS...
#
# FOLDER is .build/gpu-node. The root there has a shell, the C library with its ldconfig, libseccomp and four
# files of /etc, as every Linux has; no other program, and no network. The arguments are passed to gpu-node/run. The
# report is in FOLDER-report.
set -euo pipefail
node=$(readlink -f "$1"); shift
root=$(mktemp -d /var/tmp/gpu-node-root.XXXXXX)
keep() {
  rm -rf "$node-report"
  if [ -d "$root/report" ]; then mv "$root/report" "$node-report"; fi
  rm -rf --one-file-system "$root"
}
trap keep EXIT
mkdir -p "$root"/{bin,dev,etc,gpu-node,old,proc,run,sbin,sys,tmp,var/lib,var/log}
for file in /bin/sh /sbin/ldconfig; do cp -L "$file" "$root$file"; done
libraries='libc.so.6|libm.so.6|libdl.so.2|libpthread.so.0|librt.so.1|libseccomp.so.2|ld-linux-[a-z0-9-]*.so.[0-9]'
ldconfig -p | awk -v names="^($libraries)\$" '$1 ~ names { print $NF }' | while read -r file; do
  mkdir -p "$root${file%/*}"; cp -L "$file" "$root$file"
done
loader=$(echo /lib*/ld-linux-*.so.?)
mkdir -p "$root${loader%/*}"; cp -L "$loader" "$root$loader"
echo root:x:0:0::/:/bin/sh >"$root/etc/passwd"
echo root:x:0: >"$root/etc/group"
echo 127.0.0.1 localhost >"$root/etc/hosts"
: >"$root/etc/resolv.conf"
# shellcheck disable=SC2016
ROOT=$root NODE=$node unshare --mount --pid --net --ipc --fork --kill-child --propagation private bash -c '
  set -e
  mount --bind "$ROOT" "$ROOT"; cd "$ROOT"
  mount --bind "$NODE" gpu-node
  mount --rbind /dev dev; mount --rbind /sys sys; mount -t proc proc proc
  mount -t tmpfs tmpfs run; mount -t tmpfs tmpfs tmp
  pivot_root . old
  box=/gpu-node/bin/busybox
  $box umount -l /old; $box rmdir /old; cd /
  exec $box env -i PATH=/bin:/sbin /gpu-node/run -simulated -allow-settings -out /report "$@"' run "$@"
