// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"time"

	"k8s.io/klog/v2"
)

// endPatience is how long the process may take to end. It is less than a pod's
// grace period (terminationGracePeriodSeconds, 30 s), so that the log says what
// hangs before the kubelet kills it.
const endPatience = 24 * time.Second

// endInTime ends the process if it has not ended by itself in time. A call into the
// GPU driver can hang for ever. The next agent finishes the open operations, as after
// a crash.
func endInTime() { time.AfterFunc(endPatience, giveUp) }

func giveUp() {
	klog.Flush()
	sayWhatHangs(os.Stderr)
	os.Exit(1)
}

// sayWhatHangs prints what each goroutine does. There is nowhere to report that it
// could not.
func sayWhatHangs(w io.Writer) {
	_, _ = fmt.Fprintf(w, "gpu-kubelet-plugin: has not ended within %v and gives up; the next agent finishes the open operations. Running goroutines:\n", endPatience)
	_ = pprof.Lookup("goroutine").WriteTo(w, 1)
}
