// Package imports keeps the direction in which the packages of this module may
// import each other. Tests are exempt: they may put anything together.
package imports

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gpu-dra/gpu-dra-driver/"

// rules says what of this module each folder may import, in the order of the
// layers: a folder may name folders further down only. A folder's subfolders
// belong to it.
var rules = []struct {
	folder string
	may    []string
}{
	{"test", []string{"cmd", "pkg", "api"}},
	{"cmd", []string{"pkg", "api"}},
	{"pkg/controller", []string{"pkg/claim", "pkg/catalog", "pkg/store", "pkg/gpu", "api"}},
	{"pkg/plugin", []string{"pkg/claim", "pkg/catalog", "pkg/gpu", "api"}},
	{"pkg/claim", []string{"pkg/catalog", "pkg/store", "pkg/gpu", "api"}},
	{"pkg/catalog", []string{"pkg/gpu", "api"}},
	// The adapters: only cmd and test name them.
	{"pkg/nvml", []string{"pkg/gpu"}},
	{"pkg/nvmlsim", []string{"pkg/gpu"}},
	{"pkg/sysfs", []string{"pkg/gpu"}},
	{"pkg/procfs", []string{"pkg/gpu"}},
	{"pkg/mps", []string{"pkg/gpu", "pkg/folder"}},
	{"pkg/cdi", []string{"pkg/gpu"}},
	{"pkg/podresources", []string{"pkg/gpu"}},

	// What the agent has on disk.
	{"pkg/home", []string{"pkg/store", "pkg/folder"}},
	{"pkg/store", []string{"pkg/folder"}},
	{"pkg/folder", nil},
	{"api", []string{"pkg/gpu"}},
	{"pkg/gpu", nil},
}

// vendored are interfaces of others that stay where they are translated.
var vendored = []struct {
	path string
	may  []string
}{
	// pkg/cdi hands the interface on to nvcdi.
	{"github.com/NVIDIA/go-nvml", []string{"cmd", "test", "pkg/nvml", "pkg/nvmlsim", "pkg/cdi"}},
	{"github.com/NVIDIA/nvidia-container-toolkit", []string{"cmd", "test", "pkg/cdi"}},
	{"k8s.io/client-go", []string{"cmd", "test", "pkg/controller", "pkg/plugin"}},
}

func TestPackagesImportInOneDirection(t *testing.T) {
	for _, p := range packages(t) {
		for _, problem := range check(p) {
			t.Error(problem)
		}
	}
}

func TestAViolationIsFound(t *testing.T) {
	for _, c := range []struct {
		name     string
		pkg      pkg
		problems int
	}{
		{"catalog may use the vocabulary", pkg{module + "pkg/catalog", []string{module + "pkg/gpu"}}, 0},
		{"a subfolder belongs to its folder", pkg{module + "pkg/nvmlsim/internal/gen", []string{module + "pkg/nvmlsim"}}, 0},
		{"a name that only begins alike is another folder", pkg{module + "pkg/nvml", []string{module + "pkg/nvmlsim"}}, 1},
		{"catalog may not name an adapter", pkg{module + "pkg/catalog", []string{module + "pkg/nvml"}}, 1},
		{"the store knows nothing of ours", pkg{module + "pkg/store", []string{module + "pkg/gpu"}}, 1},
		{"claim may not reach for NVML", pkg{module + "pkg/claim", []string{"github.com/NVIDIA/go-nvml/pkg/nvml"}}, 1},
		{"a folder without a rule", pkg{module + "pkg/util", nil}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := check(c.pkg); len(got) != c.problems {
				t.Errorf("%d problems %q, want %d", len(got), got, c.problems)
			}
		})
	}
}

// pkg is what go list tells of a package.
type pkg struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"...")
	out, err := list.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var packages []pkg
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// check gives the problems of one package.
func check(p pkg) []string {
	folder := strings.TrimPrefix(p.ImportPath, module)
	if folder+"/" == module {
		return nil // the module's root holds no code
	}
	var problems []string
	rule := slices.IndexFunc(rules, func(r struct {
		folder string
		may    []string
	}) bool {
		return within(folder, r.folder)
	})
	if rule < 0 {
		return []string{folder + " has no rule in this test: say what it may import"}
	}
	own, may := rules[rule].folder, rules[rule].may
	for _, path := range p.Imports {
		if target, ours := strings.CutPrefix(path, module); ours && !within(target, own) && !withinAny(target, may) {
			problems = append(problems, folder+" imports "+target+"; "+own+" may import only "+strings.Join(append(may, "itself"), ", "))
		}
		for _, v := range vendored {
			if within(path, v.path) && !withinAny(folder, v.may) {
				problems = append(problems, folder+" imports "+path+", which is for "+strings.Join(v.may, ", "))
			}
		}
	}
	return problems
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

func withinAny(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return within(path, f) })
}
