// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

func killPrepared(ctx context.Context, n *node) error {
	claim, first, err := n.preparedClaim(ctx, "kill-prepared")
	if err != nil {
		return err
	}
	if err := n.restart(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	return n.equal(ctx, claim, first)
}

func killUnprepare(ctx context.Context, n *node) error {
	claim, first, err := n.preparedClaim(ctx, "kill-unprepare")
	if err != nil {
		return err
	}
	if err := n.restart(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	if err := n.unprepare(ctx, call(claim)); err != nil {
		return err
	}
	return n.gone(claim, cdiIDs(first))
}

// killWithin kills the driver after parts of the time that a call takes.
func killWithin(ctx context.Context, n *node) error {
	if n.driver == nil {
		return errNoDriver
	}
	claim, err := n.one(ctx, "kill-within")
	if err != nil {
		return err
	}
	const rounds = 8
	calls := map[string]func() error{
		"prepare":   func() error { _, err := n.readyOnce(ctx, claim); return err },
		"unprepare": func() error { return n.unprepare(ctx, call(claim)) },
	}
	took := map[string]time.Duration{}
	for _, name := range []string{"prepare", "unprepare"} {
		var began time.Time
		if err := until(ctx, n.waits.again, func() error { began = time.Now(); return calls[name]() }); err != nil {
			return err
		}
		took[name] = time.Since(began)
	}
	for i := range rounds {
		for _, name := range []string{"prepare", "unprepare"} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = calls[name]() // the driver may die before it answers
			}()
			err := errors.Join(sleep(ctx, took[name]*time.Duration(i)/rounds), n.restart(ctx, syscall.SIGKILL))
			<-done
			if err == nil && name == "prepare" && i%2 == 1 {
				// The kubelet unprepares a claim of which no prepare has succeeded once its pod is gone.
				if err = until(ctx, n.waits.again, calls["unprepare"]); err == nil {
					err = n.nothingNames(claim)
				}
			}
			if err == nil {
				err = until(ctx, n.waits.again, calls[name])
			}
			if err != nil {
				return fmt.Errorf("%s, killed after %d/%d of its time: %w", name, i, rounds, err)
			}
		}
	}
	return n.nothingNames(claim)
}

func emptiedWhileAway(ctx context.Context, n *node) error {
	if n.driver == nil {
		return errNoDriver
	}
	claim, _, err := n.preparedClaim(ctx, "emptied-killed")
	if err != nil {
		return err
	}
	if err := n.driver.signal(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	if err := n.emptyCDI(); err != nil {
		return err
	}
	if err := n.restart(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	_, err = n.ready(ctx, claim)
	return err
}

func cdiEmptied(ctx context.Context, n *node) error {
	claim, _, err := n.preparedClaim(ctx, "cdi-emptied")
	if err != nil {
		return err
	}
	if err := n.emptyCDI(); err != nil {
		return err
	}
	_, err = n.ready(ctx, claim)
	return err
}

func terminates(ctx context.Context, n *node) error {
	return n.restart(ctx, syscall.SIGTERM)
}

func updates(ctx context.Context, n *node) error {
	if n.driver == nil {
		return errNoDriver
	}
	claim, first, err := n.preparedClaim(ctx, "update")
	if err != nil {
		return err
	}
	names, err := n.deviceNames(ctx)
	if err != nil {
		return err
	}
	before, err := n.awaitPlugin(ctx)
	if err != nil {
		return err
	}
	old := n.driver
	defer old.signal(context.WithoutCancel(ctx), syscall.SIGKILL) //nolint:errcheck // it is to end by SIGTERM below
	if n.driver, err = n.startDriver(); err != nil {
		return err
	}
	// The first instance answers until the second has registered.
	if err := until(ctx, startLimit, func() error {
		now, err := n.awaitPlugin(ctx)
		if err == nil && now.socket == before.socket && now.at.Equal(before.at) {
			err = errors.Join(n.ended(), errors.New("the second instance has not registered"))
		}
		return err
	}); err != nil {
		return err
	}
	// The second instance needs a moment to replace the first.
	if err := errors.Join(sleep(ctx, n.waits.begin), old.signal(ctx, syscall.SIGTERM)); err != nil {
		return err
	}
	if !n.driver.running() {
		return errors.New("the second instance has ended")
	}
	return errors.Join(n.same(ctx, names), n.equal(ctx, claim, first))
}
