// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/ports"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// noSpecs is a CDI folder without specs.
type noSpecs struct{ ports.CDI }

func (noSpecs) List(context.Context) ([]types.UID, error) { return nil, nil }

// agentOf returns the journal of an agent on a node with records in the folder.
func agentOf(t *testing.T, dir string) *Journal {
	t.Helper()
	records, err := store.Open(dir, store.Unsynced{})
	must(t, err)
	j := &Journal{Records: records, Specs: noSpecs{}, BootID: "boot-1"}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// save writes the record of a claim for a GPU.
func save(t *testing.T, j *Journal, name, device string) {
	t.Helper()
	p := plan.Plan{Claim: plan.Ref{Namespace: "team", Name: name, UID: types.UID("uid-" + name)}, Devices: []plan.Device{{Request: "gpu", Pool: "node-1", Name: kindtest.Name(device), UUID: "GPU-1"}}}
	ids := fmt.Sprintf(`{"ids":["gpu.nvidia.com/claim=%s"]}`, name)
	must(t, j.Save(New(j.BootID, p, []Entry{{Step: StepWriteCDI, State: Done, Result: []byte(ids)}})))
}

// held returns the claims and their devices.
func held(t *testing.T, j *Journal) string {
	t.Helper()
	holders, err := j.Holders(t.Context())
	must(t, err)
	text := ""
	for _, h := range holders {
		text += fmt.Sprintf("%s %v\n", h.Claim.Name, h.Names())
	}
	return text
}

func TestAnAgentSeesTheRecordsOfAnother(t *testing.T) {
	for name, look := range map[string]func(*Journal){
		"with a watch": func(*Journal) {},
		// The kernel has none left: the next use tries again.
		"without a watch": func(j *Journal) {
			_ = j.cache.watch.Close()
			j.cache.watch = nil
		},
		"after the end of the watch":            func(j *Journal) { _ = j.Close() },
		"with a watch that has missed a change": func(j *Journal) { _ = j.cache.watch.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "claims")
			ours, theirs := agentOf(t, dir), agentOf(t, dir)
			save(t, theirs, "b", "gpu-1b-00")
			for _, step := range []struct {
				name string
				do   func()
				want string
			}{
				{"at the start", func() {}, "b [gpu-1b-00]\n"},
				{"a new claim", func() { save(t, theirs, "a", "gpu-43-00") }, "a [gpu-43-00]\nb [gpu-1b-00]\n"},
				{"nothing", func() {}, "a [gpu-43-00]\nb [gpu-1b-00]\n"},
				// The record has the same size, and often the same time.
				{"another device", func() { save(t, theirs, "a", "gpu-52-00") }, "a [gpu-52-00]\nb [gpu-1b-00]\n"},
				{"an own claim", func() { save(t, ours, "c", "gpu-43-00") }, "a [gpu-52-00]\nb [gpu-1b-00]\nc [gpu-43-00]\n"},
				{"a claim that is gone", func() { _ = theirs.Delete("uid-b") }, "a [gpu-52-00]\nc [gpu-43-00]\n"},
			} {
				step.do()
				require.Same(t, step.name+": held", step.want, held(t, ours))
				look(ours)
			}
		})
	}
}

// A read can fail without any change of the record.
func TestARecordThatCouldNotBeReadIsReadAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	ours, theirs := agentOf(t, dir), agentOf(t, dir)
	held(t, ours)
	save(t, theirs, "a", "gpu-1b-00")
	record, elsewhere := filepath.Join(dir, "uid-a.record"), filepath.Join(dir, "..", "elsewhere")
	good, err := os.ReadFile(record)
	must(t, err)
	// The watch has no event of a file in another folder.
	must(t, errors.Join(os.Remove(record), os.WriteFile(elsewhere, []byte("damaged"), 0o600), os.Symlink(elsewhere, record+".tmp"), os.Rename(record+".tmp", record)))
	if got := held(t, ours); got != "" {
		t.Errorf("held %q, of a damaged record", got)
	}
	must(t, os.WriteFile(elsewhere, good, 0o600))
	if got := held(t, ours); got != "a [gpu-1b-00]\n" {
		t.Errorf("held %q, of a record that was damaged before", got)
	}
}

// The callers of Holders keep their result while the records change.
func TestHoldersStayAsTheyWereRead(t *testing.T) {
	j := agentOf(t, filepath.Join(t.TempDir(), "claims"))
	save(t, j, "b", "gpu-1b-00")
	before, err := j.Holders(t.Context())
	must(t, err)
	save(t, j, "a", "gpu-43-00")
	save(t, j, "b", "gpu-52-00")
	if got := held(t, j); got != "a [gpu-43-00]\nb [gpu-52-00]\n" {
		t.Errorf("held %q", got)
	}
	if len(before) != 1 || before[0].Names()[0] != kindtest.Name("gpu-1b-00") {
		t.Errorf("the holders of before are %v", before)
	}
}
