// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

func (o *options) newVersion() *cobra.Command {
	only := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "The versions of this program, the API server, and the driver's chart, agents and supervisors",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := []rows.Version{{Component: "client", Version: version.Get().GitVersion}}
			var failure error
			if !only {
				var found []rows.Version
				found, failure = o.versions(cmd.Context())
				all = append(all, found...)
			}
			t := rows.Table{Heading: []string{"COMPONENT", "VERSION", "NAMESPACE", "PODS"}}
			for _, v := range all {
				pods := "-"
				if v.Pods > 0 {
					pods = fmt.Sprint(v.Pods)
				}
				t.Rows = append(t.Rows, []string{v.Component, v.Version, rows.OrDash(v.Namespace), pods})
			}
			if err := printList(o, "VersionList", all, t, ""); err != nil {
				return err
			}
			return failure
		},
	}
	cmd.Flags().BoolVar(&only, "client", false, "print the version of this program only")
	return cmd
}

// versions returns the versions in the cluster. Those before an error are known.
func (o *options) versions(ctx context.Context) ([]rows.Version, error) {
	r, err := o.dial()
	if err != nil {
		return nil, err
	}
	info, err := r.client.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	all := []rows.Version{{Component: "server", Version: info.GitVersion}}
	c, err := o.driverPods(ctx, r.client)
	if err != nil {
		return all, err
	}
	switch reason := c.Unread[doctor.DriverPods]; {
	case reason != "":
		fmt.Fprintln(o.ErrOut, reason) //nolint:errcheck // there is no other place to say so
	case len(c.DaemonSets) == 0:
		fmt.Fprintln(o.ErrOut, noAgentFound(o.driver)) //nolint:errcheck // as above
	}
	return append(all, rows.Versions(c)...), nil
}
