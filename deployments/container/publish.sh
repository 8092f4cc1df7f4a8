#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds and pushes the images of a release, pushes its chart, and signs all, without a key. It needs docker, helm,
# jq and cosign, and the files of `make release`.
#
#   publish.sh VERSION PREFIX      e.g. publish.sh v1.2.3 registry.example.com/gpu-dra-driver
set -euo pipefail
if [ $# -ne 2 ]; then sed -n 4,7p "$0" >&2; exit 2; fi
cd "$(dirname "$0")/../.."
version=$1 prefix=$2 release=.build/release/$1
# Docker's default builder cannot attest.
docker buildx inspect gpu-dra-release >/dev/null 2>&1 || docker buildx create --name gpu-dra-release
PREFIX=$prefix VERSION=$version docker buildx bake --builder gpu-dra-release \
  --file deployments/container/docker-bake.hcl --push --metadata-file .build/pushed.json
# Helm names the digest on one of the streams, depending on its version.
chart=$(helm push "$release/gpu-dra-driver-${version#v}.tgz" "oci://$prefix/charts" 2>&1 | tee /dev/stderr | sed -n 's/^Digest: *\(sha256:[0-9a-f]\{64\}\)$/\1/p')
[ -n "$chart" ] || { echo "helm push has named no digest of the chart" >&2; exit 1; }
{
  jq --raw-output '.[] | "\(."image.name" | sub(":[^:]*$"; ""))@\(."containerimage.digest")"' .build/pushed.json
  echo "$prefix/charts/gpu-dra-driver@$chart"
} | xargs --max-args=1 cosign sign --yes
cosign sign-blob --yes --bundle "$release/SHA256SUMS.sigstore.json" "$release/SHA256SUMS"
