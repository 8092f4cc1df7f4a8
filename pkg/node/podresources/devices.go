// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// DeviceCheckpointName is the name of a [DeviceCheckpoint] in the kubelet's folder of device
// plugins.
const DeviceCheckpointName = "kubelet_internal_checkpoint"

// DeviceCheckpoint is the path of the kubelet's file about devices of device plugins. It has the UIDs of pods, which the PodResources API has not.
//
// The file is the kubelet's own. Source: pkg/kubelet/cm/devicemanager/checkpoint of
// Kubernetes 1.20 to 1.37.
type DeviceCheckpoint string

// Pods returns the UIDs of the pods that have each GPU or MIG device. The keys are devices as in
// [gpu.ExternalAllocation]. The error wraps [gpu.ErrCorrupt] for a file of another format.
func (c DeviceCheckpoint) Pods() (map[string][]types.UID, error) {
	text, err := file.Read(string(c))
	if err != nil {
		return nil, fmt.Errorf("devices of the kubelet: %w", err)
	}
	var state struct {
		Data struct {
			PodDeviceEntries []struct {
				PodUID       types.UID
				ResourceName string
				// DeviceIDs by NUMA node.
				DeviceIDs map[string][]string
			}
		}
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return nil, fmt.Errorf("devices of the kubelet in %s: %w: %w", c, gpu.ErrCorrupt, err)
	}
	pods := map[string][]types.UID{}
	for _, of := range state.Data.PodDeviceEntries {
		if !strings.HasPrefix(of.ResourceName, resourcePrefix) {
			continue
		}
		for _, ids := range of.DeviceIDs {
			for _, id := range ids {
				if name := device(id); !slices.Contains(pods[name], of.PodUID) {
					pods[name] = append(pods[name], of.PodUID)
				}
			}
		}
	}
	return pods, nil
}
