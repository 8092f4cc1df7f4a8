// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	// indexed is a name in a template, which scheduler_perf replaces by one with a number
	// from 0. As long as the object is not text, it has a name that objects may have.
	indexed, indexWord = "n-{{.Index}}", "n-the-index"
	// templateNodes is the size of the fleet. Claims of whole GPUs fill half of it before
	// pods with as many claims come.
	templateNodes, templateClaims = 500, 2000
	// initClaims and measurePods are parameters of the tests of scheduler_perf/dra.
	initClaims, measurePods = "initClaims", "measurePods"
	claimTemplate           = "claim"
)

// templates writes files into a folder.
type templates struct {
	dir  string
	errs []error
}

// writeTemplates writes the configuration of scheduler_perf with its templates into a folder:
// a test for each publication, of the form and the nodes of the test
// SchedulingWithResourceClaimTemplate/5000pods_500nodes of scheduler_perf/dra.
func writeTemplates(dir string, fleets []fleet) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	t := templates{dir: dir}
	var tests []any
	for _, f := range fleets {
		tests = append(tests, t.test(f))
	}
	t.write("performance-config.yaml", tests)
	return errors.Join(t.errs...)
}

// test writes the templates of a publication and returns its test. The claims are of the
// last kind that fills the publication.
func (t *templates) test(f fleet) any {
	name := f.publication.name
	filling := f.publication.fillingKinds()
	kind := filling[len(filling)-1]
	all, err := f.slices(indexWord, nil)
	t.errs = append(t.errs, err)

	node := nodeObject(indexWord)
	node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	steps := []any{map[string]any{"opcode": "createNodes", "nodeTemplatePath": t.write(name+"-node.yaml", node), "count": templateNodes}}
	create := func(path string, count int) {
		steps = append(steps, map[string]any{"opcode": "createAny", "templatePath": path, "count": count})
	}
	for i, slice := range all {
		slice.TypeMeta = metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"}
		create(t.write(fmt.Sprintf("%s-slice-%d.yaml", name, i), slice), templateNodes)
	}
	for _, class := range f.classes {
		if class.Name == kind.devices.Requests[0].Exactly.DeviceClassName {
			class = class.DeepCopy()
			class.TypeMeta = metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "DeviceClass"}
			create(t.write(name+"-class.yaml", class), 1)
		}
	}
	spec := resourceapi.ResourceClaimSpec{Devices: *kind.devices}
	first := t.write(name+"-claim.yaml", &resourceapi.ResourceClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}, ObjectMeta: metav1.ObjectMeta{Name: indexWord}, Spec: spec,
	})
	ofPods := t.write(name+"-claim-template.yaml", &resourceapi.ResourceClaimTemplate{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaimTemplate"}, ObjectMeta: metav1.ObjectMeta{Name: claimTemplate},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	})
	claim := claimTemplate
	pod := pod("", kind)
	pod.TypeMeta, pod.GenerateName = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "pod-"
	pod.Spec.ResourceClaims[0].ResourceClaimName, pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = nil, &claim
	steps = append(steps,
		map[string]any{"opcode": "createAny", "namespace": "init", "templatePath": first, "countParam": "$" + initClaims},
		map[string]any{"opcode": "allocResourceClaims", "namespace": "init"},
		map[string]any{"opcode": "createAny", "namespace": "test", "templatePath": ofPods},
		map[string]any{"opcode": "createPods", "namespace": "test", "podTemplatePath": t.write(name+"-pod.yaml", pod), "countParam": "$" + measurePods, "collectMetrics": true},
	)
	return map[string]any{
		"name":             name,
		"featureGates":     map[string]bool{"DynamicResourceAllocation": true, "DRAPartitionableDevices": true, "DRAConsumableCapacity": true},
		"workloadTemplate": steps,
		"workloads":        []any{map[string]any{"name": fmt.Sprintf("%dpods_%dnodes", 2*templateClaims, templateNodes), "labels": []string{"performance"}, "params": map[string]int{initClaims: templateClaims, measurePods: templateClaims}}},
	}
}

// write writes a file and returns its name.
func (t *templates) write(name string, object any) string {
	text, err := yaml.Marshal(object)
	if err == nil {
		err = os.WriteFile(filepath.Join(t.dir, name), []byte(strings.ReplaceAll(string(text), indexWord, indexed)), 0o600)
	}
	t.errs = append(t.errs, err)
	return name
}
