#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks this machine for the tools that the Makefile needs, and says how to get missing ones.
#
#   needs.sh                    a table of all needs; fails if one is missing
#   needs.sh go cc              fails, with the way to get them, if Go or a C compiler is missing
#   needs.sh --install cc       the same, but on Debian as root it installs a missing tool
#
# It runs before anything is built, also with the bash 3.2 of a Mac, so it uses only
# the shell, uname and id. In tests OS_RELEASE is another file than /etc/os-release, and
# SBIN are other folders than those of root's programs.
set -euo pipefail

all='make git go cc cxx python root cluster chromium'
# Not in the table: few commands need them.
special='debootstrap'
top=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)

# purpose prints which targets need it.
purpose() {
  case $1 in
  make | git | go) echo 'every target' ;;
  cc) echo 'make unit, make demo, make test' ;;
  cxx) echo 'make lint, make test' ;;
  root | cluster) echo 'make demo, make test' ;;
  python) echo 'make unit, make test' ;;
  chromium) echo 'make test, make browser' ;;
  debootstrap) echo 'tools/fresh' ;;
  *) printf 'needs.sh: no such need: %s; it knows: %s\n' "$1" "$all $special" >&2; return 2 ;;
  esac
}

# system prints debian, fedora, mac or other.
system() {
  case $(uname -s) in
  Darwin) echo mac; return ;;
  Linux) ;;
  *) echo other; return ;;
  esac
  local line like=''
  if [ -r "${OS_RELEASE:-/etc/os-release}" ]; then
    while read -r line; do
      case $line in ID=* | ID_LIKE=*) like="$like ${line#*=}" ;; esac
    done <"${OS_RELEASE:-/etc/os-release}"
  fi
  case $like in
  *debian* | *ubuntu*) echo debian ;;
  *fedora* | *rhel*) echo fedora ;;
  *) echo other ;;
  esac
}

# older reports whether the version $1 (1.26.0) is older than $2.
older() {
  local IFS=. i
  # Version numbers have no spaces, and are split at the dots on purpose.
  # shellcheck disable=SC2206
  local a=($1 0 0 0) b=($2 0 0 0)
  for i in 0 1 2; do
    if [ "${a[i]%%[!0-9]*}" -ne "${b[i]%%[!0-9]*}" ]; then
      [ "${a[i]%%[!0-9]*}" -lt "${b[i]%%[!0-9]*}" ]
      return
    fi
  done
  return 1
}

# wantedGo prints the version in go.mod.
wantedGo() {
  local word version
  while read -r word version; do
    if [ "$word" = go ]; then echo "$version"; return; fi
  done <"$top/go.mod"
}

# look prints the version or path of a need, or fails and prints its name.
look() {
  local version path
  case $1 in
  make)
    version=$(make --version 2>/dev/null) || { echo 'GNU make 4'; return 1; }
    version=${version%%$'\n'*}
    version=${version#GNU Make }
    case $version in [0-9]*) ;; *) echo 'GNU make 4: this make is another one'; return 1 ;; esac
    if older "$version" 4; then echo "GNU make 4: this is $version"; return 1; fi
    echo "$version"
    ;;
  git)
    command -v git || { echo git; return 1; }
    ;;
  go)
    command -v go >/dev/null || { echo "Go $(wantedGo)"; return 1; }
    # The installed Go, and not the one that it would download for go.mod.
    version=$(cd / && GOTOOLCHAIN=local go env GOVERSION)
    version=${version#go}
    if older "$version" 1.21; then echo "Go $(wantedGo): this is $version"; return 1; fi
    if older "$version" "$(wantedGo)"; then echo "$version, which downloads Go $(wantedGo) by itself"; return; fi
    echo "$version"
    ;;
  cc)
    path=$(command -v "${CC:-gcc}") || { echo "a C compiler (${CC:-gcc}), which cgo and the race detector need"; return 1; }
    if ! echo '#include <stdlib.h>' | "$path" -E - >/dev/null 2>&1; then
      echo 'the headers of the C library, which cgo needs'; return 1
    fi
    echo "$path"
    ;;
  cxx)
    command -v "${CXX:-g++}" || { echo "a C++ compiler (${CXX:-g++}), with which Vale is built"; return 1; }
    ;;
  python)
    command -v python3 || { echo 'python3, in which an example of the simulator is written'; return 1; }
    ;;
  root)
    if [ "$(uname -s)" != Linux ]; then
      echo 'Linux: these targets start a real Kubernetes node (kubelet, containerd, network namespaces)'; return 1
    fi
    if [ "$(id -u)" != 0 ]; then
      echo 'root: these targets start a real Kubernetes node (kubelet, containerd, network namespaces)'; return 1
    fi
    echo 'Linux, root'
    ;;
  cluster)
    if [ "$(uname -s)" != Linux ]; then echo 'programs of a Linux node'; return 1; fi
    local missing='' program
    for program in busybox conntrack ip iptables nsenter runc; do
      command -v "$program" >/dev/null || PATH=$PATH:${SBIN-/usr/sbin:/sbin} command -v "$program" >/dev/null || missing="$missing $program"
    done
    if [ -z "$missing" ]; then echo 'the programs of a node'; return; fi
    if command -v apt-get >/dev/null; then echo "the cluster installs$missing with apt-get when it starts"; return; fi
    echo "programs of a node:$missing"
    return 1
    ;;
  chromium)
    command -v chromium || command -v google-chrome || { echo 'chromium, in which the pages of kubectl gpu ui are tested'; return 1; }
    ;;
  debootstrap)
    command -v debootstrap || PATH=$PATH:${SBIN-/usr/sbin:/sbin} command -v debootstrap || { echo 'debootstrap, which installs a base system of Debian into a folder'; return 1; }
    ;;
  esac
}

# packages prints the packages of a need, or fails if the distribution has none that will do.
packages() {
  case $1:$2 in
  make:debian | make:fedora) echo make ;;
  git:debian | git:fedora) echo git ;;
  cc:debian) echo gcc libc6-dev ;;
  cc:fedora) echo gcc glibc-devel glibc-static ;;
  cxx:debian) echo g++ ;;
  cxx:fedora) echo gcc-c++ ;;
  cluster:debian) echo busybox-static conntrack iproute2 iptables util-linux runc ;;
  cluster:fedora) echo busybox conntrack-tools iproute iptables-nft util-linux runc ;;
  python:debian | python:fedora) echo python3 ;;
  chromium:debian) echo chromium fonts-dejavu-core ;;
  chromium:fedora) echo chromium dejavu-sans-fonts ;;
  debootstrap:debian) echo debootstrap ;;
  *) return 1 ;;
  esac
}

# remedy prints how to get a need.
remedy() {
  local found list
  found=$(system)
  if list=$(packages "$1" "$found"); then
    case $found in
    debian) echo "sudo apt-get install --no-install-recommends $list" ;;
    fedora) echo "sudo dnf install $list" ;;
    esac
    return
  fi
  if [ "$1" = go ] && [ -n "${SUDO_USER:-}" ]; then
    echo 'sudo has a PATH of its own. If you have Go: sudo --preserve-env=PATH,HOME make TARGET'
    return
  fi
  case $1:$found in
  go:mac) echo "brew install go, or https://go.dev/dl/" ;;
  go:*) echo 'https://go.dev/doc/install; distributions have older ones. Go 1.21 and newer download the right version by themselves' ;;
  make:mac) echo 'brew install make, and call it as gmake' ;;
  git:mac | cc:mac | cxx:mac | python:mac) echo 'xcode-select --install' ;;
  root:mac | cluster:mac)
    echo 'a Linux virtual machine (docs/dev/first-change.md). A Mac alone builds only kubectl gpu' ;;
  chromium:mac) echo 'brew install --cask chromium, with chromium on PATH' ;;
  root:other | cluster:other) [ "$(uname -s)" = Linux ] || { echo 'a Linux virtual machine (docs/dev/first-change.md)'; return; }
    if [ "$1" = cluster ]; then echo 'install them with the package manager of this system'; return; fi
    echo 'run it with sudo, or run `make unit`, which needs no root' ;;
  root:*) echo 'run it with sudo, or run `make unit`, which needs no root' ;;
  *) echo 'install it with the package manager of this system' ;;
  esac
}

install=''
if [ "${1:-}" = --install ]; then install=yes; shift; fi

if [ $# = 0 ]; then
  status=0
  missing=''
  for need in $all; do
    if found=$(look "$need"); then state=ok; else state=missing; missing="$missing $need"; status=1; fi
    printf '%-9s %-8s %s\n' "$need" "$state" "$found"
  done
  for need in $missing; do
    printf '\n%s is missing, for %s:\n  %s\n' "$need" "$(purpose "$need")" "$(remedy "$need")"
  done
  exit $status
fi

status=0
for need in "$@"; do
  purpose "$need" >/dev/null
  if found=$(look "$need"); then continue; fi
  if [ -n "$install" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && list=$(packages "$need" debian); then
    printf '==> installing %s: %s\n' "$list" "$found"
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $list
    continue
  fi
  printf 'This needs %s.\n  %s\n' "$found" "$(remedy "$need")" >&2
  status=1
done
exit $status
