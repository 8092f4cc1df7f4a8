// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

func start(t *testing.T, script string) (string, Record) {
	t.Helper()
	dir := t.TempDir()
	r, err := Start(dir, Spec{Name: "daemon", Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Log: filepath.Join(dir, "daemon.log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(context.WithoutCancel(t.Context()), 0); err != nil {
			t.Error(err)
		}
	})
	return dir, r
}

func TestAnotherProcessWithTheSameIDIsLeftAlone(t *testing.T) {
	_, r := start(t, "exec sleep 300")
	for name, change := range map[string]func(*Record){
		"another start time": func(r *Record) { r.StartTime++ },
		"another boot":       func(r *Record) { r.BootID = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			other := r
			change(&other)
			if other.Alive() {
				t.Error("it counts as alive")
			}
			if err := other.Stop(t.Context(), time.Second); err != nil {
				t.Error(err)
			}
			if !r.Alive() {
				t.Error("the wrong process was stopped")
			}
		})
	}
}

func TestADaemonThatIgnoresSIGTERMIsKilled(t *testing.T) {
	dir, r := start(t, `trap "" TERM; echo ready; while :; do sleep 300; done`)
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return strings.Contains(Tail(filepath.Join(dir, "daemon.log"), 1), "ready"), nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(t.Context(), 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if r.Alive() {
		t.Error("it still runs")
	}
}

func TestAProgramsNameMayLookLikeState(t *testing.T) {
	got, err := parseStat("42 (a) R (b c) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3")
	if err != nil || got != (stat{state: "S", startTime: 987654}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := parseStat("42 (a) S 1"); err == nil {
		t.Error("a short line was accepted")
	}
}

// The number of a process that has ended may belong to a thread later.
func TestStoppingLeavesAThreadWithTheNumberAlone(t *testing.T) {
	numbers, done := make(chan int), make(chan struct{})
	for range 2 { // one of them may be on the first thread, which has the number of the process
		go func() {
			runtime.LockOSThread()
			numbers <- unix.Gettid()
			<-done
		}()
	}
	defer close(done)
	for range 2 {
		if number := <-numbers; number != os.Getpid() {
			r := Record{Spec: Spec{Name: "ended"}, PID: number}
			if err := r.Stop(t.Context(), time.Second); err != nil {
				t.Error(err)
			}
		}
	}
}
