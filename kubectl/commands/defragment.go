// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/lists"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// checkDefragment returns an error if a flag of the command is for one pod only.
func checkDefragment(cmd *cobra.Command) error {
	for _, name := range []string{"filename", "any-priority", "evict", "force", "delete-emptydir-data", "timeout", "dry-run"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s: %w: --defragment changes nothing, and is for all pods that wait; the scheduler itself places the pods that you evict", name, gpu.ErrInvalid)
		}
	}
	return nil
}

// defragment prints the pods to move so that the waiting pods run; those of one node only if it is named.
func (r *room) defragment(ctx context.Context, node string) error {
	cluster, err := r.readWhole(ctx, lists.All...)
	if err != nil {
		return err
	}
	if node != "" {
		if err := checkNames("node", []string{node}, cluster.NodeNames(), "kubectl get nodes lists the nodes"); err != nil {
			return err
		}
	}
	budgets, err := readBudgets(ctx, r.client)
	if err != nil {
		return err
	}
	answer, err := cluster.Defragment(ctx, r.limit, node, budgets)
	if err != nil {
		return err
	}
	err = r.printSections(answer, answer.Sections())
	if len(answer.Items)+answer.NotExamined > 0 && !answer.Helps() {
		return cmp.Or(err, error(exitStatus(2)))
	}
	return err
}
