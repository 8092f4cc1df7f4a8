// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

func TestStrangersOnHeldDevices(t *testing.T) {
	const part = "gpu-00-00"
	stranger := []claim.Stranger{{Device: kindtest.Name(part), Claims: []types.UID{"uid-a", "uid-b"}, PID: 4711}}
	for name, c := range map[string]struct {
		runs func(*occupants)
		// unread is a claim that could not be compared with the API server.
		unread types.UID
		want   []claim.Stranger
	}{
		"a process of a claim's pod":       {runs: func(o *occupants) { o.runs(0, 4711, "pod-a") }},
		"a process of the neighbour's pod": {runs: func(o *occupants) { o.runs(0, 4711, "pod-b") }},
		"a process of a pod of a claim's PodGroup": {runs: func(o *occupants) {
			o.runs(0, 4711, "pod-group")
			o.consumers["uid-b"] = []types.UID{"pod-group"}
		}},
		"a process of another pod":           {runs: func(o *occupants) { o.runs(0, 4711, "pod-gone") }, want: stranger},
		"a program of the host":              {runs: func(o *occupants) { o.runs(0, 4711, "") }},
		"a pod that monitors all GPUs":       {runs: func(o *occupants) { o.runs(0, 4711, "pod-m") }},
		"another pod on a GPU without claim": {runs: func(o *occupants) { o.runs(1, 4711, "pod-gone") }},
		"a process of another pod that has ended": {runs: func(o *occupants) {
			o.runs(0, 4711, "pod-gone")
			o.ends(4711)
		}},
		"another pod, which may be of a claim that could not be read": {
			runs: func(o *occupants) { o.runs(0, 4711, "pod-gone") }, unread: "uid-b",
		},
		"a GPU that does not answer": {runs: func(o *occupants) {
			o.runs(0, 4711, "pod-gone")
			o.errs[gpu.PCIAddress{}] = gpu.ErrTimeout
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newShareWorld(t, t.TempDir(), 2)
			o := w.occupied()
			m := w.start()
			for _, holder := range []*resourceapi.ResourceClaim{
				usedBy(pieces("a", piece{device: part, memory: "10Gi"}), "pod-a"), usedBy(pieces("b", piece{device: part, memory: "10Gi"}), "pod-b"), usedBy(monitor("m"), "pod-m"),
			} {
				if _, err := m.Prepare(once(), holder); err != nil {
					t.Fatal(err)
				}
			}
			c.runs(o)
			held, err := m.Held(t.Context())
			must(t, err)
			var compared []claim.Held
			for _, h := range held {
				if h.UID != c.unread {
					compared = append(compared, h)
				}
			}
			ctx, log := logged(t.Context())
			got, err := m.Strangers(ctx, compared)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v, strangers (-want +got):\n%s", err, diff)
			}
			if named := strings.Contains(log.String(), "pod-gone"); named != (len(c.want) > 0) {
				t.Errorf("the log names the pod: %t\n%s", named, log)
			}
		})
	}
}
