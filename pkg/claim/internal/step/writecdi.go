// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// writeCDI writes the CDI spec. The spec lets containers use the devices, so this is the
// last step of a plan. The spec is also the witness of a lost record (package journal), so
// it is no [Sweeper]: a spec without a record holds its devices. And it is no [Witness]:
// the spec of a claim with a lost record is removed when all else is undone, because it
// names the steps to undo.
type writeCDI struct {
	ports.Node
	before List // the steps before this one
}

func (writeCDI) Name() string { return journal.StepWriteCDI }

func (writeCDI) GPUWide() bool { return false }

func (writeCDI) OnlyFiles() {}

func (writeCDI) Needed(plan.Plan) []kind.Name { return []kind.Name{{}} }

func (s writeCDI) Do(ctx context.Context, w Work, _ journal.Entry) (json.RawMessage, error) {
	r := w.Record
	injections := make([]gpu.Injection, 0, len(r.Devices))
	for _, d := range r.Devices {
		injection, err := s.injection(ctx, r, d)
		if err != nil {
			return nil, err
		}
		injections = append(injections, injection)
	}
	owner := types.NamespacedName{Namespace: r.Claim.Namespace, Name: r.Claim.Name}
	ids, err := s.CDI.Write(ctx, r.Claim.UID, owner, injections)
	if err != nil {
		return nil, err
	}
	return journal.Encode(journal.Spec{IDs: ids})
}

func (s writeCDI) Undo(ctx context.Context, w Work, _ journal.Entry) error {
	return s.CDI.Remove(ctx, w.Claim.UID)
}

// injection returns what containers need of a device.
func (s writeCDI) injection(ctx context.Context, r *journal.Record, d plan.Device) (gpu.Injection, error) {
	injection := gpu.Injection{ID: d.InjectionID(r.Claim.UID)}
	err := s.addGPUs(ctx, d.Name, &injection)
	if err == nil {
		err = s.before.Inject(ctx, r, d, &injection)
	}
	if err != nil {
		return injection, fmt.Errorf("device %s: %w", d.Name, err)
	}
	return injection, nil
}

// addGPUs adds the device nodes of a device's GPUs. If the device has one GPU, it adds the
// GPU's location in the machine too. Minor numbers change when the driver is loaded again,
// so they are read each time and not remembered.
func (s writeCDI) addGPUs(ctx context.Context, name kind.Name, injection *gpu.Injection) (err error) {
	if name.Kind.Scope() == kind.ScopeNode {
		injection.DeviceNodes, err = s.allNodes(ctx)
		return err
	}
	g, err := s.Inventory.GPU(ctx, name.Address)
	if err != nil {
		return err
	}
	injection.DeviceNodes, injection.Env = []string{nodeOf(g.GPU)}, environment(g.GPU)
	return nil
}

// environment returns the variables for the place of a GPU in the machine. Their names and
// values depend on the GPU alone: a container can have several claims, and a runtime
// replaces a variable that several of them set.
func environment(g gpu.GPU) []string {
	var env []string
	add := func(name, value string) {
		if value != "" {
			env = append(env, fmt.Sprintf("%s_%s=%s", name, strings.ToUpper(strings.ReplaceAll(g.Address.ShortName(), "-", "_")), value))
		}
	}
	if g.NUMANode != nil {
		add(v1alpha1.EnvironmentNUMANode, strconv.Itoa(*g.NUMANode))
	}
	add(v1alpha1.EnvironmentCPUs, g.CPUs)
	nics, rdma := g.NearNICs()
	add(v1alpha1.EnvironmentNICs, strings.Join(nics, ","))
	add(v1alpha1.EnvironmentRDMADevices, strings.Join(rdma, ","))
	return env
}

func nodeOf(g gpu.GPU) string { return fmt.Sprintf("/dev/nvidia%d", g.Minor) }

// allNodes returns those of all GPUs that answer. A container with the node of a GPU
// that is gone would not start.
func (s writeCDI) allNodes(ctx context.Context) ([]string, error) {
	gpus, err := s.Inventory.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, g := range gpus {
		nodes = append(nodes, nodeOf(g.GPU))
	}
	if s.MonitorNodes == nil {
		return nodes, nil
	}
	more, err := s.MonitorNodes()
	return append(nodes, more...), err
}
