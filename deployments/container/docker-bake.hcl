# SPDX-License-Identifier: Apache-2.0
variable "PREFIX" { default = "localhost/gpu-dra-driver" }
variable "VERSION" { default = "v0.0.0" }

group "default" { targets = ["image"] }

target "image" {
  matrix     = { name = ["gpu-kubelet-plugin", "gpu-mps-supervisor", "gpu-sim", "gpu-probe"] }
  name       = name
  target     = name
  dockerfile = "deployments/container/Dockerfile"
  platforms  = ["linux/amd64", "linux/arm64"]
  args       = { VERSION = VERSION }
  # A tag cannot have the + of a version.
  tags       = ["${PREFIX}/${name}:${replace(VERSION, "+", "_")}"]
  # The bill of materials and the provenance go into the registry with the image.
  attest     = ["type=sbom", "type=provenance,mode=max"]
}
