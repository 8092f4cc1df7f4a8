package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// staticManifest is the rendering for those without helm.
const staticManifest = "../../deployments/static/install.yaml"

const staticHead = `# gpu-dra-driver without helm: kubectl apply -f install.yaml
# It is deployments/helm/gpu-dra-driver with its default values and images without
# a registry. Made by ` + "`make manifests`" + `; do not edit.
`

func TestRenderingsAreWhatTheGoldenFilesShow(t *testing.T) {
	files, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			r := mustRender(t, cluster{}, valuesFile(t, name+".yaml"))
			golden(t, filepath.Join("testdata/golden", name+".yaml"), document(append(r.manifests, r.hooks...)))
			golden(t, filepath.Join("testdata/golden", name+".txt"), r.notes)
		})
	}
}

func TestTheManifestForThoseWithoutHelmIsCurrent(t *testing.T) {
	r := mustRender(t, cluster{}, "namespace: {create: true}")
	golden(t, staticManifest, staticHead+document(r.manifests))
}

// golden compares with a file, or writes it where UPDATE_GOLDEN is set.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the chart renders; `make manifests` writes it anew (-want +got):\n%s", path, diff)
	}
}
