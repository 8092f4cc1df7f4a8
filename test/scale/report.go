// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// report writes the results. The ratio of a result is its processor time of the scheduler
// divided by that of a plain exclusive GPU in the same run, at the same fill.
func report(w io.Writer, o options, results []result) error {
	if _, err := fmt.Fprintf(w, "%d nodes, %d pods of each kind, seed %d\n\n", o.nodes, o.pods, o.seed); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	//nolint:errcheck // Flush reports it
	fmt.Fprintln(table, "PUBLICATION\tkB A NODE\tHELD\tCLAIMS\tPOD\tPODS\tPODS/S\tSCHEDULER ms/POD\tOF PLAIN\tOF EMPTY\tAPI SERVER ms/POD\tSCHEDULER GB\tAPI SERVER GB")
	for _, r := range results {
		//nolint:errcheck // Flush reports it
		fmt.Fprintf(table, "%s\t%.1f\t%d %%\t%d\t%s\t%d\t%.1f\t%.1f\t%s\t%s\t%.1f\t%.2f\t%.2f\n", r.Publication, float64(r.Bytes)/1000, r.Fill, r.Claims, r.Kind, r.Pods,
			r.PodsPerSecond, r.SchedulerTime, ratio(r, results, plain, "whole", r.Fill), ratio(r, results, r.Publication, r.Kind, 0),
			r.APIServerTime, gigabytes(r.SchedulerMemory), gigabytes(r.APIServerMemory))
	}
	return table.Flush()
}

// ratio compares a result with another one.
func ratio(r result, all []result, publication, kind string, fill int) string {
	i := slices.IndexFunc(all, func(other result) bool {
		return other.Publication == publication && other.Kind == kind && other.Fill == fill
	})
	if i < 0 || all[i].SchedulerTime == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.SchedulerTime/all[i].SchedulerTime)
}
