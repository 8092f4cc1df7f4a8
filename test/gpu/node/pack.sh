#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Packs the travelling node: pack.sh BIN IMAGES TAG OUT, as "make gpu-node" calls it.
#
# OUT gets the folder gpu-node.
set -euo pipefail
bin=$1 images=$2 tag=$3 out=$4
here=${BASH_SOURCE[0]%/*}
node=$out/gpu-node
rm -rf "$node"
"$bin/cluster" pack "$node"
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$node/run" ./test/gpu/node
cp "$bin/kubectl-gpu" "$bin/nvidia-cdi-hook" "$bin/gpu-conformance" "$node/bin/"
echo "gpu-dra-driver $tag" >"$node/version"
mkdir -p "$node/applets"
for applet in $("$node/bin/busybox" --list); do ln -s ../bin/busybox "$node/applets/$applet"; done
mkdir -p "$node/images" "$node/charts" "$node/simulated"
cp "$images"/gpu-kubelet-plugin.tar "$images"/gpu-mps-supervisor.tar "$images"/gpu-sim.tar "$node/images/"
# The driver's library needs these in the image. The linker of a new C library leaves out empty ones by their short names.
libraries=(-Wl,--no-as-needed -lm -l:libdl.so.2 -l:libpthread.so.0 -l:librt.so.1)
cc -O2 -o "$node/bin/gpuload" "$here/gpuload/gpuload.c" "${libraries[@]}"
cc -O2 -DLIBRARY=NULL -rdynamic -o "$node/simulated/gpuload" "$here/gpuload/gpuload.c" "$here/gpuload/libcuda.c" "${libraries[@]}"
render() {
  local name=$1
  shift
  "$bin/helm" template gpu-dra-driver deployments/helm/gpu-dra-driver --namespace gpu-dra-driver --skip-tests \
    --set image.registry=localhost/gpu-dra-driver --set image.pullPolicy=Never --set "image.tag=$tag" \
    --set kubelet.rootDir=/var/lib/gpu-dra-cluster/gpu/kubelet --set cdi.dir=/var/lib/gpu-dra-cluster/gpu/cdi \
    --set timeslice.slots=32 --set deviceClasses.seat.enabled=true "$@" >"$node/charts/$name.yaml"
  # A rendering lacks the namespace.
  printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: gpu-dra-driver\n' | cat - "$node/charts/$name.yaml" >"$node/charts/.new"
  mv "$node/charts/.new" "$node/charts/$name.yaml"
}
for machine in "" -simulated; do
  more=()
  [ -z "$machine" ] || more=(--set simulation.model=1-h200)
  render "default$machine" "${more[@]}"
  render "oneuser$machine" --set mps.multiUser=false "${more[@]}"
  render "exclusive$machine" --set mps.exclusiveCompute=true "${more[@]}"
  # The story puts the profile of the GPU in the place of this one.
  render "layout$machine" --set mig.layout=halves --set-json 'mig.layouts="version: v1\nmig-configs: {halves: [{devices: all, mig-enabled: true, mig-devices: {3g.71gb: 2}}]}"' "${more[@]}"
done
