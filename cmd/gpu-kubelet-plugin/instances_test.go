// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/programtest"
)

// instanceSlices has a file for each kind of machine, for autoscalers that simulate machines
// that do not exist yet.
const instanceSlices = "../../docs/admin/instance-slices"

// instances are the machines of a cloud or a data centre that stand for many.
func instances() []string {
	return []string{"a30-bridge", "dgx-a100", "dgx-b200", "dgx-h100", "dgx1-v100", "gb200", "hgx-h200", "l40s", "rtx-pro-6000", "t4"}
}

// ofOneMachine are attributes that another machine of the same kind has with other values.
func ofOneMachine() []resourceapi.QualifiedName {
	return []resourceapi.QualifiedName{"uuid", "fabricClusterUUID", "fabricCliqueID"}
}

// "make instance-slices" rewrites the files.
func TestInstanceSlicesEqualTheOutputOfTheAgent(t *testing.T) {
	for model, root := range programtest.Nodes(t, t.TempDir(), instances()...) {
		t.Run(model, func(t *testing.T) {
			cmd, out := agentProcess(t, "--driver-root="+root, "--machine-root="+root, "--node-name=template", "--print-slices")
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			path := filepath.Join(instanceSlices, model+".yaml")
			got := instanceText(t, model, out.Bytes())
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s is not what the agent prints; run make instance-slices (-want +got):\n%s", path, diff)
			}
		})
	}
}

// instanceText returns the printed slices without what belongs to one machine or one cluster.
func instanceText(t *testing.T, model string, printed []byte) string {
	t.Helper()
	var list struct{ Items []resourceapi.ResourceSlice }
	if err := yaml.UnmarshalStrict([]byte(strings.Replace(string(printed), `"metadata": {},`, "", 1)), &struct {
		metav1.TypeMeta `json:",inline"`
		Items           *[]resourceapi.ResourceSlice `json:"items"`
	}{Items: &list.Items}); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("# ResourceSlices of a simulated " + model + " with the agent's defaults, without UUIDs.\n# Written by make instance-slices; docs/admin/programs.md has their use.\n")
	for _, slice := range list.Items {
		slice.ObjectMeta = metav1.ObjectMeta{Name: strings.TrimSuffix(slice.GenerateName, "-")}
		for i := range slice.Spec.Devices {
			for _, name := range ofOneMachine() {
				delete(slice.Spec.Devices[i].Attributes, name)
			}
		}
		object, err := yaml.Marshal(slice)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n" + string(object))
	}
	return text.String()
}
