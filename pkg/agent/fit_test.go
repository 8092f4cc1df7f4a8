// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
)

// The shares add up to the published memory of a device. Each process uses all of
// its share's limit, of which its context is a part.
func TestSharesOfAllThatIsPublishedFitOnTheDevice(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		device, share   string
		multiprocessors int
	}{
		"a GPU":        {"gpu-1b-00", "20Gi", 132},
		"a MIG device": {"gpu-43-00-mig-1g-10gb-2", "4Gi", 16},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.nameSlices(t)
			n.Offer = "share,mig"
			supervisor := n.supervise(t)
			a := n.start(t)
			left := n.memory(t, tc.device)
			var limits []string
			for i, size := 0, resource.MustParse(tc.share); left.Sign() > 0; i++ {
				if left.Cmp(size) < 0 {
					size = left
				}
				claim := shareFor(fmt.Sprint("share-", i), tc.device, size.String(), "0")
				if _, err := n.client.ResourceV1().ResourceClaims(claim.Namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				a.mustPrepare(t, claim)
				limits = append(limits, n.variable(t, claim, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"))
				left.Sub(size)
			}
			pipe := n.stand(t, supervisor.daemon(tc.device).Devices...)
			for _, limit := range limits {
				if err := fill(t, pipe, limit, h100.ContextBytes(tc.multiprocessors)); err != nil {
					t.Errorf("a process with %s of it: %v", limit, err)
				}
			}
		})
	}
}

// memory returns the published memory of a device.
func (n *node) memory(t *testing.T, name string) resource.Quantity {
	t.Helper()
	for _, slice := range n.published(t) {
		for _, device := range slice.Spec.Devices {
			if device.Name == name {
				return device.Capacity[v1alpha1.CapacityMemory].Value
			}
		}
	}
	t.Fatalf("%s is not published", name)
	return resource.Quantity{}
}

// variable is one of the environment that a claim brings.
func (n *node) variable(t *testing.T, claim *resourceapi.ResourceClaim, name string) string {
	t.Helper()
	_, lines := n.injected(t, claim)
	for _, line := range lines {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value
		}
	}
	t.Fatalf("%s is not in %q", name, lines)
	return ""
}

// stand runs the stand-in for MPS on devices until the test ends, and returns its
// pipe directory.
func (n *node) stand(t *testing.T, devices ...string) string {
	t.Helper()
	model, err := nvmlsim.LoadModel("dgx-h100")
	if err != nil {
		t.Fatal(err)
	}
	sim, err := nvmlsim.OpenOrCreate(n.SimState, model)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(n.SimState)
	// Servers of other users pass through it.
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	o := mpssim.Options{PipeDirectory: filepath.Join(dir, "pipe"), LogDirectory: filepath.Join(dir, "log"), Shm: t.TempDir(), VisibleDevices: devices}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- mpssim.Run(ctx, sim, o, func() { close(ready) }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the stand-in for MPS: %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.FailNow()
	}
	// A client shows that it has the server's shm.
	if err := os.Symlink(o.Shm, filepath.Join(dir, "shm")); err != nil {
		t.Fatal(err)
	}
	return o.PipeDirectory
}

// h100 is what the context of a client depends on.
var h100 = nvmlsim.ComputeDevice{ComputeCapability: nvmlsim.Version{Major: 9}, Multiprocessors: 132}

// fill is a client with a limit. It uses all of the limit until the test ends, and must be
// refused one byte more.
func fill(t *testing.T, pipe, limit string, contextBytes uint64) error {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "unix", filepath.Join(pipe, "control"))
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = conn.Close() })
	replies := json.NewDecoder(conn)
	ask := func(r mpssim.Request) (reply mpssim.Reply, err error) {
		if err := json.NewEncoder(conn).Encode(r); err != nil {
			return reply, err
		}
		if err := replies.Decode(&reply); err != nil {
			return reply, err
		}
		if reply.Error != nil {
			return reply, reply.Error
		}
		return reply, nil
	}
	server, err := ask(mpssim.Request{Op: "connect", PinnedDeviceMemLimit: limit})
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(filepath.Dir(pipe), "shm", server.Shm))
	if err != nil {
		return err
	}
	if _, err := ask(mpssim.Request{Op: "attach", Token: string(token)}); err != nil {
		return err
	}
	mebibytes, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(limit, "0="), "M"), 10, 64)
	if err != nil {
		return err
	}
	if _, err = ask(mpssim.Request{Op: "alloc", Bytes: mebibytes<<20 - contextBytes}); err != nil {
		return err
	}
	if _, err := ask(mpssim.Request{Op: "alloc", Bytes: 1}); err == nil {
		return errors.New("it has more than its limit")
	}
	return nil
}
