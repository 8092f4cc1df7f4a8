// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/cordon"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/evict"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/lists"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// operatorRole is the chart's ClusterRole for the commands that change something.
const operatorRole = "gpu-dra-driver-operator"

// verb is a command that changes the use of one GPU.
type verb struct {
	*options
	reader
	name   cordon.Name
	dryRun bool

	mu sync.Mutex
}

// newVerb returns a command that changes the use of one GPU.
func (o *options) newVerb(use, short, long string, do func(ctx context.Context, v *verb) error) *cobra.Command {
	var dryRun string
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dryRun != "none" && dryRun != "client" {
				return fmt.Errorf("--dry-run %s: %w: want none or client", dryRun, gpu.ErrInvalid)
			}
			if o.output != "" {
				return fmt.Errorf("--output %s: %w: %s prints its steps only", o.output, gpu.ErrInvalid, cmd.Name())
			}
			name, err := cordon.ParseName(o.driver, args[0])
			if err != nil {
				return err
			}
			r, err := o.dial()
			if err != nil {
				return err
			}
			return do(cmd.Context(), &verb{options: o, reader: r, name: name, dryRun: dryRun == "client"})
		},
	}
	cmd.Flags().StringVar(&dryRun, "dry-run", "none", "none, or client to print the steps and change nothing")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = "client"
	return cmd
}

// say prints a step on one line.
func (v *verb) say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	line := plain.Line(fmt.Sprintf(format, args...))
	if v.dryRun {
		line += " (dry run)"
	}
	fmt.Fprintln(v.Out, line) //nolint:errcheck // the step itself matters more than its line
}

// readWhole reads the cluster. One of these lists that the user may not read as a whole is an error.
// Rules are empty if the API server does not serve them. The lists are the newest ones.
func (v *verb) readWhole(ctx context.Context, required ...doctor.List) (*rows.Cluster, error) {
	objects, unread, err := lists.Newest(ctx, v.client, v.namespace, required...)
	refused := slices.DeleteFunc(slices.Clone(required), func(list doctor.List) bool { return unread[list] == "" })
	if len(refused) > 0 {
		err = missing("list "+strings.Join(fleet.Each(refused, func(list doctor.List) string { return string(list) }), " and "), nil)
	}
	if err != nil {
		return nil, err
	}
	return rows.New(objects, v.reader.driver, nil), nil
}

// requests sends requests, with the seconds for each pod to end; negative for the pod's own time.
func (v *verb) requests(gracePeriod int64) evict.Requests {
	return evict.Requests{Client: v.client, Say: v.say, Failed: failed, GracePeriod: gracePeriod}
}

// find reads the lists, and returns the GPU with the objects.
func (v *verb) find(ctx context.Context, required ...doctor.List) (cordon.Target, fleet.Objects, error) {
	cluster, err := v.readWhole(ctx, required...)
	if err != nil {
		return cordon.Target{}, fleet.Objects{}, err
	}
	t, err := cordon.Find(cluster.Nodes(), v.name)
	if err == nil {
		v.name = t.Name // not the UUID, which only a published GPU has
	}
	return t, cluster.Objects, err
}

// missing returns the error about a right that the user lacks. It wraps
// [gpu.ErrPermission]. refusal is the API server's answer, if there is one.
func missing(right string, refusal error) error {
	err := fmt.Errorf("%w: you have no right to %s: ask an administrator for the driver's ClusterRole %s: %s", gpu.ErrPermission, right, operatorRole, gpu.Page("docs/admin/failed-gpus.md#rights-of-these-commands"))
	if refusal != nil {
		err = fmt.Errorf("%w: %w", err, refusal)
	}
	return err
}

// failed returns the error of a request that changes an object.
func failed(request string, err error) error {
	if apierrors.IsForbidden(err) {
		return missing(request, err)
	}
	return fmt.Errorf("%s: %w", request, err)
}
