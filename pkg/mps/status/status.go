// SPDX-License-Identifier: Apache-2.0

// Package status writes the status of MPS daemons, as a table or as JSON.
package status

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// daemonStatus is the JSON form of a daemon. Fields are added and never removed.
type daemonStatus struct {
	Name             string      `json:"name"`
	Devices          []string    `json:"devices"`
	State            string      `json:"state"`
	Problem          string      `json:"problem,omitempty"`
	PID              int         `json:"pid,omitempty"`
	Restarts         int         `json:"restarts"`
	ThreadPercentage int         `json:"threadPercentage,omitempty"`
	MemoryLimits     []uint64    `json:"memoryLimits,omitempty"`
	Namespaces       []namespace `json:"namespaces,omitempty"`
	// Interrupted is when clients last lost their server.
	Interrupted time.Time `json:"interrupted,omitzero"`
	// Waiting are the processes that wait for the end of another user's programs.
	Waiting []waitingStatus `json:"waiting,omitempty"`
	Servers []serverStatus  `json:"servers,omitempty"`
}

type waitingStatus struct {
	PID int `json:"pid"`
	UID int `json:"uid"`
}

type namespace struct {
	Name             string `json:"name"`
	ThreadPercentage int    `json:"threadPercentage"`
	MemoryLimit      uint64 `json:"memoryLimit,omitempty"`
}

type serverStatus struct {
	PID     int    `json:"pid"`
	State   string `json:"state"`
	Clients int    `json:"clients"`
}

// WriteJSON writes daemons for programs to read.
func WriteJSON(w io.Writer, daemons []gpu.MPSStatus) error {
	list := []daemonStatus{}
	for _, d := range daemons {
		s := daemonStatus{
			Name: d.Daemon.Name, Devices: d.Daemon.Devices, State: string(d.State), Problem: d.Problem, PID: d.PID, Restarts: d.Restarts,
			ThreadPercentage: d.Daemon.ThreadPercentage, MemoryLimits: d.Daemon.MemoryLimits, Interrupted: d.Interrupted,
		}
		for _, w := range d.Waiting {
			s.Waiting = append(s.Waiting, waitingStatus(w))
		}
		for _, n := range d.Daemon.Namespaces {
			s.Namespaces = append(s.Namespaces, namespace(n))
		}
		for _, server := range d.Servers {
			s.Servers = append(s.Servers, serverStatus(server))
		}
		list = append(list, s)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(list)
}

// WriteText writes daemons as a table for a person to read.
func WriteText(w io.Writer, daemons []gpu.MPSStatus) error {
	if len(daemons) == 0 {
		_, err := fmt.Fprintln(w, "No MPS daemons: nothing on this node is shared by MPS.")
		return err
	}
	rows := []string{"NAME\tSTATE\tPID\tRESTARTS\tTHREADS\tMEMORY\tSERVERS\tCLIENTS\tDEVICES"}
	for _, d := range daemons {
		clients := 0
		var servers []string
		for _, s := range d.Servers {
			clients += s.Clients
			servers = append(servers, fmt.Sprintf("%d %s", s.PID, s.State))
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s", d.Daemon.Name, d.State, number(d.PID), d.Restarts,
			threads(d.Daemon), memory(d.Daemon), orNone(servers), clients, strings.Join(d.Daemon.Devices, ",")))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(table, strings.Join(rows, "\n")); err != nil {
		return err
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, d := range daemons {
		var notes []string
		if d.Problem != "" {
			notes = append(notes, d.Problem)
		}
		if !d.Interrupted.IsZero() {
			notes = append(notes, "its clients lost their server at "+d.Interrupted.Format(time.RFC3339))
		}
		for _, p := range d.Waiting {
			notes = append(notes, fmt.Sprintf("process %d of user %d waits until the programs of another user have ended", p.PID, p.UID))
		}
		for _, note := range notes {
			if _, err := fmt.Fprintf(w, "\n%s: %s\n", d.Daemon.Name, note); err != nil {
				return err
			}
		}
	}
	return nil
}

func number(pid int) string {
	if pid == 0 {
		return "-"
	}
	return fmt.Sprint(pid)
}

// threads returns the ceiling of a daemon, or the one of each of its namespaces.
func threads(d gpu.MPSDaemon) string {
	if d.HasNamespaces() {
		var each []string
		for _, n := range d.Namespaces {
			each = append(each, fmt.Sprintf("%d%%", n.ThreadPercentage))
		}
		return strings.Join(each, ",")
	}
	if d.ThreadPercentage == 0 {
		return "any"
	}
	return fmt.Sprintf("%d%%", d.ThreadPercentage)
}

// memory returns the ceilings of a daemon for its devices, or the one of each of its
// namespaces.
func memory(d gpu.MPSDaemon) string {
	all := d.MemoryLimits
	for _, n := range d.Namespaces {
		all = append(all, n.MemoryLimit)
	}
	var limits []string
	for _, limit := range all {
		if limit == 0 {
			limits = append(limits, "any")
			continue
		}
		limits = append(limits, resource.NewQuantity(int64(limit), resource.BinarySI).String())
	}
	if len(limits) == 0 {
		return "any"
	}
	return strings.Join(limits, ",")
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ",")
}
