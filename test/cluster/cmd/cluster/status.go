// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster"
)

func printStatus(out io.Writer, s cluster.Status) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if s.Info != nil {
		fmt.Fprintf(w, "NAME\t%s\nNODE\t%s\nAPI SERVER\t%s\nKUBECONFIG\t%s\nLOGS\t%s\n\n", s.Name, s.NodeName, s.APIServer, s.Kubeconfig, s.LogsDir) //nolint:errcheck // Flush reports it
	}
	fmt.Fprintln(w, "COMPONENT\tRUNNING\tPROCESS") //nolint:errcheck // Flush reports it
	for _, c := range s.Components {
		fmt.Fprintf(w, "%s\t%t\t%d\n", c.Name, c.Running, c.PID) //nolint:errcheck // Flush reports it
	}
	return w.Flush()
}
