// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/process"
)

// Restart ends one daemon and starts it again with the same arguments. The other
// daemons and the pods keep running. It returns when the cluster is healthy again.
func Restart(ctx context.Context, l Layout, component string, say func(format string, args ...any)) error {
	if components := l.components(); !slices.Contains(components, component) {
		return fmt.Errorf("restart %s: want one of %s", component, strings.Join(components, ", "))
	}
	info, err := ReadInfo(l)
	if err != nil {
		return err
	}
	unlock, err := lockDaemons(ctx, l, say)
	if err != nil {
		return err
	}
	defer unlock()
	record, err := process.Read(l.processesDir(), component)
	if err != nil {
		return err
	}
	say("restarting %s of cluster %s", component, l.Name)
	if err := record.Stop(ctx, stopGrace); err != nil {
		return err
	}
	var began time.Time
	if component == kubelet {
		began = time.Now().Truncate(time.Second) // as the API server has times
	}
	if _, err := process.Start(l.processesDir(), record.Spec); err != nil {
		return err
	}
	// All clients come back at once to an API server that was away.
	if err := await(ctx, l, 5*time.Minute, component, l.components(), func(ctx context.Context) error {
		return healthy(ctx, l, info, began)
	}); err != nil {
		return errors.Join(fmt.Errorf("restart %s", component), err)
	}
	say("%s is back", component)
	return nil
}
