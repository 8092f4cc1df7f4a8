// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/client"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const (
	// shareMemory is the memory of a share: 48 shares fit on a GPU of 80 GB.
	shareMemory = 1536 << 20
	// firstShares is smaller than the number of rounds, because each starts a daemon.
	firstShares = 30
)

// supervisor is a running gpu-mps-supervisor on the bench's simulated node.
type supervisor struct {
	cmd    *exec.Cmd
	log    *bytes.Buffer
	client *client.Client
}

func (b *bench) supervisorSocket() string { return filepath.Join(b.dir, "mps", "supervisor.sock") }

// supervise starts the supervisor and waits until it answers.
func (b *bench) supervise(ctx context.Context) (_ *supervisor, err error) {
	s := &supervisor{log: &bytes.Buffer{}, client: client.New(b.supervisorSocket())}
	//nolint:noctx // the supervisor outlives this function and is ended by a signal
	s.cmd = exec.Command(filepath.Join(b.bin, "gpu-mps-supervisor"),
		"--driver-root="+b.root,
		"--socket="+b.supervisorSocket(),
		"--run-dir="+filepath.Join(b.dir, "mps"),
		"--log-dir="+filepath.Join(b.dir, "mps-log"),
	)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	err = harness.Until(ctx, func(ctx context.Context) (bool, string, error) {
		_, err := s.client.MPSDaemons(ctx)
		if errors.Is(err, gpu.ErrNotReady) {
			return false, err.Error(), nil
		}
		return err == nil, "", err
	})
	if err != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		return nil, fmt.Errorf("the supervisor does not answer: %w; it said:\n%s", err, s.log)
	}
	return s, nil
}

// stop ends the supervisor and the daemons that an error may have left.
func (s *supervisor) stop(ctx context.Context) error {
	daemons, err := s.client.MPSDaemons(ctx)
	errs := []error{err}
	for _, d := range daemons {
		errs = append(errs, s.client.StopMPS(ctx, d.Daemon.Name))
	}
	errs = append(errs, s.cmd.Process.Signal(syscall.SIGTERM))
	if err := s.cmd.Wait(); err != nil {
		errs = append(errs, fmt.Errorf("the supervisor ended with %w:\n%s", err, s.log))
	}
	return errors.Join(errs...)
}

// measureShares measures the figures of MPS shares.
func (b *bench) measureShares(ctx context.Context, f *figures) (err error) {
	if err := b.deleteSlices(ctx); err != nil {
		return err
	}
	s, err := b.supervise(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	a, err := b.start(ctx, "--mps-supervisor="+b.supervisorSocket())
	if err != nil {
		return err
	}
	defer a.kill()
	devices, err := b.deviceNames(ctx)
	if err != nil {
		return err
	}
	progress("preparing and unpreparing the first share of a GPU, %d times", firstShares)
	for i := range firstShares {
		prepare, unprepare, err := b.shareRound(ctx, a, devices[i%2])
		if err != nil {
			return err
		}
		f.FirstShare, f.LastShare = append(f.FirstShare, prepare), append(f.LastShare, unprepare)
	}
	progress("preparing and unpreparing a further share, %d times", b.rounds)
	keeper, err := b.share(ctx, devices[0])
	if err != nil {
		return err
	}
	if err := a.prepare(ctx, keeper); err != nil {
		return err
	}
	for range b.rounds {
		prepare, unprepare, err := b.shareRound(ctx, a, devices[0])
		if err != nil {
			return err
		}
		f.Share, f.ShareUnprepare = append(f.Share, prepare), append(f.ShareUnprepare, unprepare)
	}
	if err := b.drop(ctx, a, keeper); err != nil {
		return err
	}
	return a.stop()
}

// shareRound prepares and unprepares one share.
func (b *bench) shareRound(ctx context.Context, a *agent, device string) (prepare, unprepare float64, err error) {
	claim, err := b.share(ctx, device)
	if err != nil {
		return 0, 0, err
	}
	return b.cycle(ctx, a, claim, clock())
}
