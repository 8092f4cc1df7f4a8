// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"

	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/plain"
)

const (
	// watchDelay is the time after a change before the cluster is read again. Changes
	// often come together.
	watchDelay = time.Second
	// watchRefresh is the time after which it is read without a change: agents and ages
	// change too.
	watchRefresh = 30 * time.Second
	// watchRetry is the time before another attempt to watch. Until then the cluster is
	// read as often.
	watchRetry = 10 * time.Second
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
	var followers sync.WaitGroup
	defer followers.Wait()
	defer stop()
	changed, err := o.follow(ctx, &followers)
	if err != nil {
		return err
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

// followed is a list of objects that is watched.
type followed struct {
	list  pager.ListPageFunc
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follow returns a channel with a signal after changes of slices, claims and taint rules. The
// goroutines end with ctx.
func (o *options) follow(ctx context.Context, running *sync.WaitGroup) (<-chan struct{}, error) {
	r, err := o.dial()
	if err != nil {
		return nil, err
	}
	devices := r.client.ResourceV1()
	all, own := devices.ResourceClaims(metav1.NamespaceAll), devices.ResourceClaims(r.namespace)
	changed := make(chan struct{}, 1)
	for _, f := range []followed{
		{lister(devices.ResourceSlices().List), devices.ResourceSlices().Watch},
		{lister(devices.DeviceTaintRules().List), devices.DeviceTaintRules().Watch},
		{
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list, err := all.List(ctx, o)
				if apierrors.IsForbidden(err) {
					return own.List(ctx, o)
				}
				return list, err
			},
			func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				events, err := all.Watch(ctx, o)
				if apierrors.IsForbidden(err) {
					return own.Watch(ctx, o)
				}
				return events, err
			},
		},
	} {
		running.Go(func() {
			for ctx.Err() == nil {
				pause := watchDelay // the server has ended the watch, as it does after a while
				if f.signal(ctx, changed) != nil {
					pause = watchRetry
				}
				pauseFor(ctx, pause, nil)
			}
		})
	}
	return changed, nil
}

// signal sends to changed after each event until the watch ends. It also sends when the watch
// begins, because the list may have changed before.
func (f followed) signal(ctx context.Context, changed chan<- struct{}) error {
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a signal waits already
		}
	}
	defer notify()
	first, err := f.list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	version, err := meta.NewAccessor().ResourceVersion(first)
	if err != nil {
		return err
	}
	events, err := f.watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return err
	}
	defer events.Stop()
	notify()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-events.ResultChan():
			switch {
			case !open:
				return nil
			case event.Type == watch.Error:
				return apierrors.FromObject(event.Object)
			case event.Type != watch.Bookmark:
				notify()
			}
		}
	}
}
