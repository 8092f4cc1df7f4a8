// SPDX-License-Identifier: Apache-2.0

package rows

// version is the version of the objects and lists that commands print as JSON and YAML.
const version = "kubectl.gpu.nvidia.com/v1alpha1"

// Header is the first fields of an object in JSON and YAML.
type Header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// HeaderOf returns the header of an object of the kind.
func HeaderOf(kind string) Header { return Header{version, kind} }
