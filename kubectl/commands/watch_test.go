// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/clientcmd"
)

// watched runs a command until the test ends. It returns a function that waits for a line of
// its output.
func watched(t *testing.T, client *fake.Clientset, args ...string) (await func(part string)) {
	t.Helper()
	t.Setenv("KUBECONFIG", kubeconfig(t))
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	cmd := newCommand(genericiooptions.IOStreams{Out: in, ErrOut: t.Output()}, func(clientcmd.ClientConfig) (kubernetes.Interface, error) { return client, nil }, false)
	cmd.SetArgs(args)
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.ExecuteContext(ctx)
		_ = in.CloseWithError(io.EOF)
	}()
	printed := make(chan string, 1000)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			printed <- lines.Text()
		}
		close(printed)
	}()
	t.Cleanup(func() {
		stop()
		for range printed {
			continue // the command may still print
		}
		if err := <-ended; err != nil {
			t.Errorf("the command ends with %v", err)
		}
	})
	return func(part string) {
		t.Helper()
		limit := time.After(20 * time.Second)
		for {
			select {
			case line, open := <-printed:
				if strings.Contains(line, part) {
					return
				}
				if !open {
					t.Fatalf("the command has ended, and no line has %q", part)
				}
			case <-limit:
				t.Fatalf("no line has %q", part)
			}
		}
	}
}

func TestWatchPrintsAgainAfterChanges(t *testing.T) {
	w := shared(t)
	held := w.Claims[1]
	w.Claims = w.Claims[:1]
	client := installed(t, w)
	await := watched(t, client, "who", "-n", "default", "--watch")
	await("default     whole")
	_, err := client.ResourceV1().ResourceClaims("default").Create(t.Context(), held, metav1.CreateOptions{})
	must(t, err)
	await("default     half")

	// Two commands at a time do not disturb each other, and a sentence becomes a table.
	rows := watched(t, client, "get", "-w", "-o", "jsonpath={range .items[*]}{.name} {.health.state}{'\\n'}{end}")
	rows("gpu-3b-00 ok")
	slice := w.Slices[0].DeepCopy()
	for i := range slice.Spec.Devices {
		slice.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: "example.com/t", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	}
	_, err = client.ResourceV1().ResourceSlices().Update(t.Context(), slice, metav1.UpdateOptions{})
	must(t, err)
	rows("gpu-3b-00 tainted")
}

func TestWatchOfNothingWaitsForSomething(t *testing.T) {
	w := shared(t)
	all := w.Claims
	w.Claims = nil
	client := server(w)
	await := watched(t, client, "who", "-n", "default", "-w")
	await("no claim of any namespace holds a device")
	_, err := client.ResourceV1().ResourceClaims("default").Create(t.Context(), all[0], metav1.CreateOptions{})
	must(t, err)
	await("default     whole")
}

func TestWatchEndsIfItCannotBegin(t *testing.T) {
	client := server(shared(t))
	forbid(client, "resourceslices", false)
	if _, problems := run(t, client, "get", "-w"); !strings.Contains(problems, "list resourceslices.resource.k8s.io: permission denied") {
		t.Errorf("got %s", problems)
	}
}
