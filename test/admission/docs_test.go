package admission

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var yamlBlock = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$")

// What the administrator reads can be applied as it is. Values of the chart are
// for its own tests.
func TestManifestsInTheDocumentAreAdmitted(t *testing.T) {
	document, err := os.ReadFile("../../docs/policy.md")
	must(t, err)
	var applied int
	for _, block := range yamlBlock.FindAllStringSubmatch(string(document), -1) {
		o := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n")), &o.Object))
		if o.GetKind() == "" {
			continue
		}
		if o.GetKind() != "DeviceClass" {
			o.SetNamespace(tenant)
		}
		applied++
		t.Run(o.GetKind(), func(t *testing.T) {
			if err := world.try(t.Context(), o); err != nil {
				t.Error(err)
			}
		})
	}
	if applied < 3 {
		t.Errorf("%d manifests in the document", applied)
	}
}

// What the demos apply passes the policies of the chart's default values.
func TestTheDemosAreAdmitted(t *testing.T) {
	files, err := filepath.Glob("../../demo/*/*.yaml")
	must(t, err)
	var tried int
	for _, file := range files {
		objects, err := read(file)
		must(t, err)
		for _, o := range objects {
			switch o.GetKind() {
			case "ResourceClaim", "ResourceClaimTemplate":
				o.SetNamespace(monitoring) // some ask for admin access
			case "DeviceClass":
				// It may be one of the chart's own.
				o.SetName("tried")
			default:
				continue
			}
			tried++
			if err := world.try(t.Context(), o); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if tried < 10 {
		t.Errorf("%d claims and classes in the demos", tried)
	}
}
