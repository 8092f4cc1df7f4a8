// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/programtest"
)

// instances are the machines of a cloud or a data centre that stand for many.
func instances() []string {
	return []string{"a30-bridge", "dgx-a100", "dgx-b200", "dgx-h100", "dgx1-v100", "gb200", "hgx-h200", "l40s", "rtx-pro-6000", "t4"}
}

// ofOneMachine are attributes that another machine of the same kind has with other values.
func ofOneMachine() []resourceapi.QualifiedName {
	return []resourceapi.QualifiedName{"uuid", "fabricClusterUUID", "fabricCliqueID"}
}

// INSTANCE_SLICES is the folder for a file of each kind of machine, for autoscalers that simulate
// machines that do not exist yet. Without it one kind is tried.
func TestTheSlicesForAutoscalersNameNoMachine(t *testing.T) {
	folder, models := os.Getenv("INSTANCE_SLICES"), instances()
	if folder == "" {
		folder, models = t.TempDir(), []string{"gb200"}
	}
	for model, root := range programtest.Nodes(t, t.TempDir(), models...) {
		t.Run(model, func(t *testing.T) {
			cmd, out := agentProcess(t, "--driver-root="+root, "--machine-root="+root, "--node-name=template", "--print-slices")
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			text := instanceText(t, model, out.Bytes())
			must(t, os.WriteFile(filepath.Join(folder, model+".yaml"), []byte(text), 0o644))
			if !strings.Contains(text, "productName:") || !strings.Contains(text, "kind: ResourceSlice") {
				t.Errorf("no ResourceSlices with products:\n%s", text)
			}
			for _, name := range ofOneMachine() {
				if strings.Contains(text, " "+string(name)+":") {
					t.Errorf("%s is of one machine:\n%s", name, text)
				}
			}
		})
	}
}

// instanceText returns the printed slices without what belongs to one machine or one cluster.
func instanceText(t *testing.T, model string, printed []byte) string {
	t.Helper()
	var list struct{ Items []resourceapi.ResourceSlice }
	must(t, yaml.UnmarshalStrict([]byte(strings.Replace(string(printed), `"metadata": {},`, "", 1)), &struct {
		metav1.TypeMeta `json:",inline"`
		Items           *[]resourceapi.ResourceSlice `json:"items"`
	}{Items: &list.Items}))
	var text strings.Builder
	text.WriteString("# ResourceSlices of a simulated " + model + " with the agent's defaults, without UUIDs.\n# Written by TestTheSlicesForAutoscalers.\n")
	for _, slice := range list.Items {
		slice.ObjectMeta = metav1.ObjectMeta{Name: strings.TrimSuffix(slice.GenerateName, "-")}
		for i := range slice.Spec.Devices {
			for _, name := range ofOneMachine() {
				delete(slice.Spec.Devices[i].Attributes, name)
			}
		}
		object, err := yaml.Marshal(slice)
		must(t, err)
		text.WriteString("---\n" + string(object))
	}
	return text.String()
}
