// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// CheckpointName is the name of a [Checkpoint] in the kubelet's folder.
const CheckpointName = "dra_manager_state"

// Checkpoint is the path of the file in which the kubelet keeps the claims of its pods. It has
// the UIDs of both, which the PodResources API has not, and all pods of a PodGroup. The
// kubelet writes it before it starts a pod's containers, and until it has unprepared the
// pod's claims.
//
// The file is the kubelet's own, so another version may have another format. Source:
// pkg/kubelet/cm/dra/state of Kubernetes 1.34 to 1.37.
type Checkpoint string

// checkpointVersion is the format that this package knows.
const checkpointVersion = "checkpoint.dra.kubelet.k8s.io/v1"

// Pods returns the pods of each claim, both by UID, in ascending order. The error wraps
// [gpu.ErrNotSupported] for a file of another format, and [gpu.ErrCorrupt].
func (c Checkpoint) Pods() (map[types.UID][]types.UID, error) {
	text, err := file.Read(string(c))
	if err != nil {
		return nil, fmt.Errorf("claims of the kubelet: %w", err)
	}
	var signed struct {
		Data     string
		Checksum uint32
	}
	var state struct {
		APIVersion         string
		ClaimInfoStateList []struct {
			ClaimUID types.UID
			PodUIDs  map[types.UID]struct{}
		}
	}
	if err = json.Unmarshal(text, &signed); err == nil {
		err = json.Unmarshal([]byte(signed.Data), &state)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("claims of the kubelet in %s: %w: %w", c, gpu.ErrCorrupt, err)
	case signed.Checksum != crc32.ChecksumIEEE([]byte(signed.Data)):
		return nil, fmt.Errorf("claims of the kubelet in %s: %w: wrong checksum", c, gpu.ErrCorrupt)
	case state.APIVersion != checkpointVersion:
		return nil, fmt.Errorf("claims of the kubelet in %s: %w: format %q", c, gpu.ErrNotSupported, state.APIVersion)
	}
	pods := make(map[types.UID][]types.UID, len(state.ClaimInfoStateList))
	for _, of := range state.ClaimInfoStateList {
		pods[of.ClaimUID] = slices.Sorted(maps.Keys(of.PodUIDs))
	}
	return pods, nil
}
