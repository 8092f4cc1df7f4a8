// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// writeTestMetadata writes the same files as upstream for a request of a claim.
func writeTestMetadata(t *testing.T, p place.Place, name, uid, request string) {
	t.Helper()
	file := filepath.Join(p.DataDir, "dra-device-metadata", "team_"+name, request, "metadata.json")
	spec := filepath.Join(p.CDIDir, p.DriverName+"_metadata_"+uid+"_"+request+".json")
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	text := fmt.Sprintf(`{"kind":"DeviceMetadata","metadata":{"name":%q,"namespace":"team","uid":%q}}`+"\n", name, uid)
	must(t, errors.Join(os.WriteFile(file, []byte(text+text), 0o600), os.WriteFile(spec, []byte("{}"), 0o600)))
}

// tree lists the files and empty directories below some directories.
func tree(t *testing.T, dirs ...string) []string {
	t.Helper()
	var names []string
	for _, dir := range dirs {
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name, err := filepath.Rel(dir, path)
			if !d.IsDir() {
				names = append(names, name)
			} else if entries, err := os.ReadDir(path); err == nil && len(entries) == 0 {
				names = append(names, name+"/")
			}
			return err
		}))
	}
	return names
}

func metadataReconciler(t *testing.T, c *claims) *Reconciler {
	t.Helper()
	r, _ := newTestReconciler(fake.NewClientset(agenttest.Node(), agenttest.Allocated("kept")), c)
	r.DataDir, r.CDIDir = t.TempDir(), t.TempDir()
	return r
}

func TestAReleasedClaimHasItsMetadataRemoved(t *testing.T) {
	c := holding("kept", "gone")
	r := metadataReconciler(t, c)
	c.released = func() { c.held = c.held[:1] }
	writeTestMetadata(t, r.Place, "kept", "uid-kept", "gpu")
	writeTestMetadata(t, r.Place, "gone", "uid-gone", "gpu")
	writeTestMetadata(t, r.Place, "gone", "uid-gone", "other")
	r.reconcile(t.Context())
	r.reconcile(t.Context())
	want := []string{"dra-device-metadata/team_kept/gpu/metadata.json", "gpu.nvidia.com_metadata_uid-kept_gpu.json"}
	require.Same(t, "left", want, tree(t, r.DataDir, r.CDIDir))
}

func TestTheMetadataOfANewClaimWithTheSameNameStays(t *testing.T) {
	r := metadataReconciler(t, holding("kept"))
	writeTestMetadata(t, r.Place, "kept", "uid-before", "gpu")
	writeTestMetadata(t, r.Place, "kept", "uid-before", "old-request")
	writeTestMetadata(t, r.Place, "kept", "uid-kept", "gpu")
	r.repair(t.Context())
	want := []string{"dra-device-metadata/team_kept/gpu/metadata.json", "gpu.nvidia.com_metadata_uid-kept_gpu.json"}
	require.Same(t, "left", want, tree(t, r.DataDir, r.CDIDir))
}

func TestMetadataIsNotSweptDuringCallsOfTheKubelet(t *testing.T) {
	r := metadataReconciler(t, holding())
	writeTestMetadata(t, r.Place, "new", "uid-new", "gpu")
	must(t, r.Calls.Begin(t.Context()))
	r.sweepMetadata(t.Context())
	r.Calls.End()
	if got := tree(t, r.DataDir, r.CDIDir); len(got) != 2 {
		t.Errorf("left during a call: %q, want both files", got)
	}
	r.sweepMetadata(t.Context())
	require.Same(t, "left after the call", []string{"dra-device-metadata/", "./"}, tree(t, r.DataDir, r.CDIDir))
}

var must = require.NoError
