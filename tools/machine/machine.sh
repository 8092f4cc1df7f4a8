#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Says what tests have left on this machine, or taken from it.
#
#   machine.sh list              the mounts, network interfaces, cgroups of clusters and files in /dev/shm, a line each,
#                                and the processes that have GPU_DRA_TEST in their environment
#   machine.sh compare BEFORE    fails, and prints the difference, if the machine is not as in the file BEFORE
#
# The end of a process and of its cgroup takes a moment, so compare waits ten seconds for them. What an earlier run
# left when it was killed, this one may take away: of ours, only what is left counts.
set -euo pipefail

list() {
  {
    while read -r _ _ _ _ at _; do echo "mount $at"; done </proc/self/mountinfo
    for path in /sys/class/net/*; do echo "interface ${path##*/}"; done
    for path in /dev/shm/*; do if [ -e "$path" ]; then echo "shared memory $path"; fi; done
    find /sys/fs/cgroup -type d '(' -name 'gpu-dra*' -o -name 'kubepods*' ')' -prune -printf 'cgroup %p\n' 2>/dev/null || true
    # One grep for all: starting a program takes long on a machine with much to do.
    grep -lz '^GPU_DRA_TEST=' /proc/[0-9]*/environ 2>/dev/null | while read -r path; do
      echo "process $(tr '\0' ' ' 2>/dev/null <"${path%environ}cmdline" || true)"
    done || true
  } | sort
}

case ${1:-} in
list) list ;;
compare)
  for _ in 0 1 2 3 4 5 6 7 8 9; do
    now=$(list)
    left=$(comm -13 "$2" - <<<"$now")
    gone=$(comm -23 "$2" - <<<"$now" | grep -Ev '^process |gpu-?dra-' || true)
    if [ -z "$left$gone" ]; then exit 0; fi
    sleep 1
  done
  printf 'The machine is not as it was, unless another program did it meanwhile. Gone:\n%s\nLeft:\n%s\n' "$gone" "$left" >&2
  exit 1
  ;;
*) sed -n 4,11p "$0" >&2; exit 2 ;;
esac
