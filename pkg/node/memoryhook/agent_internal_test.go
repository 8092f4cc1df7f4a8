// SPDX-License-Identifier: Apache-2.0

package memoryhook

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/containerlimits"
)

// lateContext has passed its deadline, and ends when its end is waited for.
type lateContext struct {
	context.Context
	cancel context.CancelFunc
}

func (c lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

func (c lateContext) Done() <-chan struct{} {
	c.cancel()
	return c.Context.Done()
}

// The agent may still set the limit then, so the hook must not make its own call.
func TestTheDeadlineOfAnAnswerIsTheEndOfTheCall(t *testing.T) {
	hook, agent := net.Pipe()
	received := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, agent)
		received <- err
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := sendLimit(lateContext{ctx, cancel}, hook, containerlimits.Limit{})
	if !errors.Is(err, gpu.ErrTimeout) || ctx.Err() == nil {
		t.Errorf("%v, the context: %v; want %v at the end of the context", err, ctx.Err(), gpu.ErrTimeout)
	}
	must(t, errors.Join(hook.Close(), <-received))
}
