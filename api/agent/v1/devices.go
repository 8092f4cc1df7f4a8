// SPDX-License-Identifier: Apache-2.0

package v1

import resourceapi "k8s.io/api/resource/v1"

// Devices are the attributes of a node's devices by the name of the device, such as
// "gpu-1b-00". They include the attributes that the node publishes only on request.
type Devices map[string]map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
