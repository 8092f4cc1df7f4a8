// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
)

const (
	// watchDelay is the time after a change before the cluster is read again. Changes
	// often come together.
	watchDelay = time.Second
	// watchRefresh is the time after which it is read without a change: agents and ages
	// change too.
	watchRefresh = 30 * time.Second
)

func (o *options) watchFlag(flags *pflag.FlagSet) {
	flags.BoolVarP(&o.watching, "watch", "w", false, "print again after each change, until Ctrl-C")
}

// repeat prints once, or again after each change until ctx ends. Later errors are printed.
func (o *options) repeat(ctx context.Context, print func(context.Context, *options) error) error {
	if !o.watching {
		return print(ctx, o)
	}
	ctx, stop := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer stop()
	r, err := o.dial()
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	for _, watcher := range r.watchers(doctor.Slices, doctor.Rules, doctor.Claims) {
		watches.Go(func() {
			// Without the right to watch, the cluster is read again at intervals.
			_ = watcher.run(ctx, func() {
				select {
				case changed <- struct{}{}:
				default: // a signal waits already
				}
			})
		})
	}
	// last is the latest output, and lastErr the latest error.
	last, lastErr := "", ""
	for first := true; ; first = false {
		var out bytes.Buffer
		once := *o
		once.Out, once.terminal = plain.Writer(&out), &out
		if !first {
			once.ErrOut = io.Discard // the rights that the user lacks are known
		}
		empty, message := emptyError(""), ""
		switch err := print(ctx, &once); {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &empty):
			out.WriteString(plain.Line(string(empty)) + "\n")
		case err != nil && first:
			return err
		case err != nil:
			message = unreachable(err).Error()
		}
		if message != "" && message != lastErr {
			fmt.Fprintln(o.ErrOut, "Error:", message) //nolint:errcheck // there is no other place to say so
		}
		if text := out.String(); message == "" && text != last {
			if !first {
				text = "\n" + text
			}
			if _, err := io.WriteString(o.terminal, text); err != nil {
				return err
			}
			last = out.String()
		}
		lastErr = message
		if !pauseFor(ctx, watchRefresh, changed) || !pauseFor(ctx, watchDelay, nil) {
			return nil
		}
	}
}

// pauseFor waits for a time or a signal, and reports whether ctx still lasts.
func pauseFor(ctx context.Context, limit time.Duration, signal <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-signal:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
