// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(1) //nolint:gocritic // the process ends, so stop is not needed
	}
}

func command(ctx context.Context, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("only", "", "try only the mutants of files whose path begins like this, such as pkg/claim")
	parallel := flags.Int("parallel", runtime.NumCPU(), "how many mutants are tried at a time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(all(), func(m mutant) bool { return !strings.HasPrefix(m.file, *only) })
	return runner{root: root, limit: testLimit}.tryAll(ctx, chosen, max(1, *parallel), w)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// tryAll tries the mutants, at most parallel at a time, and writes one line for each and
// a summary. It returns an error unless the tests pass without a mutation, and fail for
// every mutant that the list does not excuse.
func (r runner) tryAll(ctx context.Context, mutants []mutant, parallel int, w io.Writer) error {
	if len(mutants) == 0 {
		return errors.New("the list has no such mutants")
	}
	if err := r.allPass(ctx, mutants, parallel); err != nil {
		return fmt.Errorf("without any mutation: %w", err)
	}
	var printing sync.Mutex
	counts := map[verdict]int{}
	each(parallel, mutants, func(m mutant) {
		res := r.try(ctx, m)
		printing.Lock()
		defer printing.Unlock()
		counts[res.verdict]++
		_, _ = fmt.Fprintf(w, "%-8s %s: %s (%s)\n", res.verdict, res.name, res.reason, res.took.Round(time.Second/10))
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var sum []string
	bad := 0
	for _, v := range []verdict{killed, excused, survived, hung, stale, doubtful, broken} {
		if counts[v] == 0 {
			continue
		}
		sum = append(sum, fmt.Sprintf("%d %s", counts[v], v))
		if !v.good() {
			bad += counts[v]
		}
	}
	_, _ = fmt.Fprintf(w, "%d mutants: %s\n", len(mutants), strings.Join(sum, ", "))
	if bad > 0 {
		return fmt.Errorf("%d of %d mutants are not noticed as the list says; write the test that fails, or bring the list up to date", bad, len(mutants))
	}
	return nil
}

// allPass returns an error if the tests of the mutants fail without a mutation.
func (r runner) allPass(ctx context.Context, mutants []mutant, parallel int) error {
	var folders []string
	for _, m := range mutants {
		folders = append(folders, m.folder())
	}
	slices.Sort(folders)
	folders = slices.Compact(folders)
	var mu sync.Mutex
	var errs []error
	each(parallel, folders, func(folder string) {
		err := r.passes(ctx, folder, mutants)
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	return errors.Join(errs...)
}

// each calls act for every item, at most parallel calls at a time, and waits for all
// calls.
func each[T any](parallel int, items []T, act func(T)) {
	queue := make(chan T)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for item := range queue {
				act(item)
			}
		})
	}
	for _, item := range items {
		queue <- item
	}
	close(queue)
	workers.Wait()
}
