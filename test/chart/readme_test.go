// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// valuesInTheREADME returns the block of values that begins with a comment.
func valuesInTheREADME(t *testing.T, comment string) string {
	t.Helper()
	text, err := os.ReadFile(chartDir + "/README.md")
	must(t, err)
	found := regexp.MustCompile("(?ms)^```yaml\n(# " + regexp.QuoteMeta(comment) + ".*?)^```$").FindStringSubmatch(string(text))
	if found == nil {
		t.Fatalf("it has no block that begins with %q", comment)
	}
	return found[1]
}

// Helm refuses to take over an object of another release.
func TestFurtherReleasesOfTheREADMEHaveNoObjectOfTheFirst(t *testing.T) {
	objects := func(name, values string) map[string]bool {
		r, err := renderAs(t, name, cluster{apis: []string{"security.openshift.io/v1"}}, values)
		must(t, err)
		all := map[string]bool{}
		for _, m := range append(r.manifests, r.hooks...) {
			var head struct {
				Kind     string
				Metadata struct{ Name, Namespace string }
			}
			must(t, yaml.Unmarshal([]byte(m), &head))
			all[head.Kind+" "+head.Metadata.Namespace+"/"+head.Metadata.Name] = true
		}
		return all
	}
	first := objects(release, "")
	for object := range objects("gpus-b", valuesInTheREADME(t, "values of every further release")) {
		if first[object] {
			t.Errorf("both releases have the %s", object)
		}
		if strings.HasPrefix(object, "DeviceClass") {
			t.Errorf("a further release has the %s", object)
		}
	}
}

func TestTheDriverManagersLabelChoosesTheNodes(t *testing.T) {
	r := mustRender(t, cluster{}, valuesInTheREADME(t, "values of this chart; label the nodes with it"))
	for _, name := range []string{"gpu-dra-driver-agent", "gpu-dra-driver-supervisor"} {
		if got := find[appsv1.DaemonSet](t, r, "DaemonSet", name).Spec.Template.Spec.NodeSelector["nvidia.com/dra-kubelet-plugin"]; got != "true" {
			t.Errorf("%s selects nodes whose label is %q", name, got)
		}
	}
}

// What nodes publish is measured, and written down in one place.
func TestTheCostsInTheValuesAreTheMeasuredOnes(t *testing.T) {
	scale, err := os.ReadFile("../../docs/admin/scale.md")
	must(t, err)
	values, err := os.ReadFile(chartDir + "/values.yaml")
	must(t, err)
	measured := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z,]+)` \\| (\\d+), \\d+ \\| ([0-9.]+ kB) \\| (\\d+ µs)").FindAllStringSubmatch(string(scale), -1) {
		measured[row[1]] = row[2] + " " + row[3] + " " + row[4]
	}
	shown := regexp.MustCompile(`(?m)^# {3}([a-z, ]+?) +(\d+) +([0-9.]+ kB) +(\d+ µs)$`).FindAllStringSubmatch(string(values), -1)
	if len(shown) < 4 {
		t.Errorf("values.yaml shows %d offers with their costs", len(shown))
	}
	for _, row := range shown {
		if got, want := row[2]+" "+row[3]+" "+row[4], measured[strings.ReplaceAll(row[1], " ", "")]; got != want {
			t.Errorf("%s: values.yaml says %q, docs/admin/scale.md %q", row[1], got, want)
		}
	}
}
