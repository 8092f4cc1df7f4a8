// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const (
	// slotsOfGPU is the number of claims that can have a slot of a GPU.
	slotsOfGPU = 64
	// othersHeld is the number of other claims that are held: all slots of 8 GPUs but one
	// of each.
	othersHeld = gpusAtOnce * (slotsOfGPU - 1)
)

// crowd measures claims of slots on an empty node, and with the claims of other pods.
func (r *runner) crowd(ctx context.Context) error {
	for _, step := range []struct {
		others  int
		samples func(*figures) *[]float64
	}{
		{0, func(f *figures) *[]float64 { return &f.ProcessorAlone }},
		{othersHeld, func(f *figures) *[]float64 { return &f.ProcessorCrowded }},
	} {
		err := r.each(0, func(d *driver) error {
			devices, err := d.deviceNames(ctx)
			if err != nil {
				return err
			}
			d.withSlots = slices.DeleteFunc(devices, func(name string) bool { return !strings.HasSuffix(name, "-ts") })
			if err := d.hold(ctx, step.others); err != nil {
				return err
			}
			d.before, err = processorTime(d.pid())
			return err
		})
		if err != nil {
			return err
		}
		for i := range r.rounds {
			err := r.each(i, func(d *driver) error {
				claim, err := d.claim(ctx, d.withSlots[i%gpusAtOnce])
				if err != nil {
					return err
				}
				_, _, err = d.cycle(ctx, d.agent, claim, clock())
				return err
			})
			if err != nil {
				return err
			}
		}
		err = r.each(0, func(d *driver) error { return d.afterClaims(r.rounds, step.samples(&d.figures)) })
		if err != nil {
			return err
		}
	}
	return r.each(0, func(d *driver) error {
		memory, err := anonymousMemory(d.pid())
		d.figures.MemoryCrowded = append(d.figures.MemoryCrowded, memory)
		// Before the next start: an agent would take the claims over.
		return errors.Join(err, d.claims().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
}

// hold prepares a number of claims of slots, evenly on the GPUs. It returns when the agent
// has written the status of all of them, which takes processor time too.
func (d *driver) hold(ctx context.Context, claims int) error {
	for i := range claims {
		claim, err := d.claim(ctx, d.withSlots[i%gpusAtOnce])
		if err != nil {
			return err
		}
		if err := d.agent.prepare(ctx, claim); err != nil {
			return err
		}
	}
	return harness.Until(ctx, func(ctx context.Context) (bool, string, error) {
		all, err := d.claims().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		missing := 0
		for _, claim := range all.Items {
			if len(claim.Status.Devices) == 0 {
				missing++
			}
		}
		return missing == 0, fmt.Sprintf("%d claims have no status", missing), nil
	})
}
