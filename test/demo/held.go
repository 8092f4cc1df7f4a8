// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// heldNamespace is the namespace of demo/held.
const heldNamespace = "held"

// held runs a greedy container and its neighbour on a node whose driver limits memory.
func held(ctx context.Context, cluster *harness.Cluster) error {
	return sideBySide(ctx, cluster, func(manifest string) string { return manifest })
}

// heldOlder shows that an older driver does not admit the same claims. It also
// shows the memory of the containers without their requirement.
func heldOlder(ctx context.Context, cluster *harness.Cluster) error {
	say("applying demo/held/greedy.yaml")
	if _, err := cluster.Kubectl(ctx, "apply", "-f", "demo/held/greedy.yaml"); err != nil {
		return err
	}
	reason, err := cluster.WaitEvent(ctx, heldNamespace, "greedy", "the ShareConfig requires driver")
	if err != nil {
		return err
	}
	say("the claim is refused: %s", reason)
	if err := cluster.EmptyNamespace(ctx, heldNamespace); err != nil {
		return err
	}
	say("both manifests without the line \"require: driver\"")
	return sideBySide(ctx, cluster, func(manifest string) string {
		return strings.ReplaceAll(manifest, "          require: driver\n", "")
	})
}

// sideBySide applies the edited manifests of demo/held, and prints the memory of
// both containers. It applies the second when the greedy container has all the
// memory that it can allocate.
func sideBySide(ctx context.Context, cluster *harness.Cluster, edit func(string) string) error {
	var rows []heldRow
	for _, name := range []string{"greedy", "well-behaved"} {
		path := "demo/held/" + name + ".yaml"
		say("applying %s", path)
		manifest, err := os.ReadFile(filepath.Join(cluster.Root, path))
		if err != nil {
			return err
		}
		if _, err := cluster.KubectlInput(ctx, edit(string(manifest)), "apply", "-f", "-"); err != nil {
			return err
		}
		row, err := readHeld(ctx, cluster, name)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if err := writeHeld(rows); err != nil {
		return err
	}
	return kubectlGPU(ctx, cluster, "who", "--namespace", heldNamespace, "--used")
}

// heldRow is a row of the table: the share of a container, the memory that it tried to
// allocate, and the memory and SMs that it got.
type heldRow struct {
	container, device string
	share             v1alpha1.ShareData
	tried             string
	got               harness.CUDA
}

// readHeld waits until the container of a pod has allocated or failed. The pod's claim
// has the same name.
func readHeld(ctx context.Context, cluster *harness.Cluster, name string) (heldRow, error) {
	row := heldRow{}
	err := harness.Until(ctx, func(ctx context.Context) (bool, string, error) {
		claim, err := cluster.Client.ResourceV1().ResourceClaims(heldNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(claim.Status.Devices) == 0 || claim.Status.Devices[0].Data == nil {
			return false, "status.devices of the claim " + name + " is empty", err
		}
		var data v1alpha1.DeviceData
		if err := json.Unmarshal(claim.Status.Devices[0].Data.Raw, &data); err != nil {
			return false, "", err
		}
		if data.Share == nil {
			return false, "", fmt.Errorf("the claim %s has no share: %s", name, claim.Status.Devices[0].Data.Raw)
		}
		row.device, row.share = claim.Status.Devices[0].Device, *data.Share
		return true, "", nil
	})
	if err != nil {
		return row, err
	}
	pod, err := cluster.Client.CoreV1().Pods(heldNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return row, err
	}
	container := pod.Spec.Containers[0]
	row.container = pod.Name + "/" + container.Name
	row.tried = strings.Join(container.Args[1:], " ")
	row.got, err = cluster.CUDA(ctx, heldNamespace, name, container.Name)
	return row, err
}

func writeHeld(rows []heldRow) error {
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CONTAINER\tDEVICE\tPROMISED\tMEMORY LIMITED BY\tTRIED\tGOT\tOF THE SMS\tCUDA ERROR") //nolint:errcheck // Flush reports it
	for _, r := range rows {
		sms := "-"
		switch {
		case !r.got.MPS:
			sms = "all, without MPS"
		case len(r.got.Client.Devices) > 0:
			sms = fmt.Sprintf("%g%%", r.got.Client.ActiveThreadPercentage)
		}
		//nolint:errcheck // Flush reports it
		fmt.Fprintf(table, "%s\t%s\t%dMi\t%s\t%s\t%dMi\t%s\t%s\n", r.container, r.device, r.share.Memory.Value()>>20,
			r.share.MemoryEnforcement, r.tried, r.got.AllocatedBytes>>20, sms, cmp.Or(r.cudaError(), "-"))
	}
	return table.Flush()
}

// cudaError returns the error that ended the container, or its allocations.
func (r heldRow) cudaError() string {
	names := []string{r.got.Error.Name, r.got.Refused.Name}
	for _, p := range r.got.Processes {
		names = append(names, p.Refused.Name)
	}
	return cmp.Or(names...)
}
