// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/process"
)

// StartGuest starts a program on the node, in the host's network namespace. The
// program is not a component of the cluster; an example is the agent of a DRA
// driver. It outlives the caller, and ends with the cluster at the latest, as all
// that it starts. args begins with the path of the program.
func StartGuest(l Layout, name, log string, args []string) error {
	if !clusterName.MatchString(name) || isComponent(name) {
		return fmt.Errorf("start %s: want a name of lower-case letters, digits and dashes that no component has", name)
	}
	if _, err := ReadInfo(l); err != nil {
		return err
	}
	record, err := process.Read(l.processesDir(), name)
	if err == nil && record.Alive() {
		return fmt.Errorf("start %s: it runs already as process %d", name, record.PID)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cgroups, err := host.FindCgroups()
	if err != nil {
		return err
	}
	daemons, err := cgroups.Create(l.Cgroup())
	if err != nil {
		return err
	}
	shell, err := host.LookPath("sh")
	if err != nil {
		return err
	}
	args = append([]string{shell, "-c", joinCgroup, daemons}, args...)
	_, err = process.Start(l.processesDir(), process.Spec{Name: name, Args: args, Env: os.Environ(), Log: log})
	return err
}

// StopGuest ends a guest: with SIGTERM and a wait, or at once if now is true. It
// succeeds if the guest is not running.
func StopGuest(ctx context.Context, l Layout, name string, now bool) error {
	if isComponent(name) {
		return fmt.Errorf("stop %s: it is a component of the cluster", name)
	}
	record, err := process.Read(l.processesDir(), name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if now {
		return record.Kill(ctx)
	}
	return record.Stop(ctx, guestGrace)
}

// stopGuests ends all guests, side by side.
func stopGuests(ctx context.Context, l Layout) error {
	records, err := process.List(l.processesDir())
	if err != nil {
		return err
	}
	var guests []string
	for _, r := range records {
		if !isComponent(r.Name) {
			guests = append(guests, r.Name)
		}
	}
	return stop(ctx, l, guests...)
}
