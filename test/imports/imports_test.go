// SPDX-License-Identifier: Apache-2.0

// Package imports keeps the direction in which the packages of this module may
// import each other. Tests are exempt: they may put anything together.
package imports

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
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
	// Flags and signals: pkg/agent puts the parts together.
	{"cmd/gpu-kubelet-plugin", []string{"cmd/internal", "pkg/agent", "pkg/podresources", "pkg/mps/mpsv1", "pkg/catalog", "pkg/gpu", "api"}},
	{"cmd", []string{"pkg", "api"}},
	{"pkg/agent/simulated", []string{"pkg/nvml", "pkg/nvmlsim", "pkg/gpu"}},
	{"pkg/agent", []string{
		"pkg/controller", "pkg/plugin", "pkg/usage", "pkg/claim", "pkg/catalog", "pkg/cluster", "pkg/inventory", "pkg/home", "pkg/gpu", "api",
		"pkg/nvml", "pkg/sysfs", "pkg/procfs", "pkg/cgroup", "pkg/limits", "pkg/mps/client", "pkg/cdi", "pkg/podresources", "pkg/livefile", "pkg/migconfig", "pkg/nodefacts",
	}},
	{"pkg/controller", []string{"pkg/inventory", "pkg/cluster", "pkg/catalog", "pkg/notify", "pkg/gpu", "api"}},
	{"pkg/cluster", []string{"pkg/catalog", "pkg/migconfig", "pkg/notify", "pkg/gpu", "api"}},
	// It reads hardware through an interface, so it names no adapter.
	{"pkg/inventory", []string{"pkg/store", "pkg/notify", "pkg/gpu", "api"}},
	// The views for users read API objects, never hardware or the agent's disk.
	{"pkg/kubectlgpu", []string{"pkg/doctor", "pkg/fleet", "pkg/catalog", "pkg/nodefacts", "pkg/usage/report", "pkg/gpu", "api"}},
	{"pkg/doctor", []string{"pkg/fleet", "pkg/nodefacts", "pkg/gpu", "api"}},
	{"pkg/fleet/fleettest", []string{"pkg/fleet", "pkg/catalog", "pkg/nvml", "pkg/nvmlsim", "pkg/sysfs", "pkg/gpu", "api"}},
	{"pkg/fleet", []string{"pkg/gpu", "api"}},
	{"pkg/plugin", []string{"pkg/usage", "pkg/claim", "pkg/catalog", "pkg/gpu", "api"}},
	// Programs of users read the report.
	{"pkg/usage/report", nil},
	// It attributes readings; package agent reads.
	{"pkg/usage", []string{"pkg/claim", "pkg/gpu", "api"}},
	{"pkg/claim", []string{"pkg/catalog", "pkg/store", "pkg/gpu", "api"}},
	{"pkg/catalog/allocatortest", []string{"pkg/catalog", "pkg/fleet", "pkg/gpu", "api"}},
	{"pkg/catalog", []string{"pkg/migconfig", "pkg/gpu", "api"}},
	// The adapters: only pkg/agent, cmd and test name them.
	{"pkg/nvml", []string{"pkg/gpu"}},
	{"pkg/nvmlsim", []string{"pkg/cgroup", "pkg/gpu"}},
	{"pkg/cgroup", []string{"pkg/gpu"}},
	{"pkg/sysfs", []string{"pkg/gpu"}},
	{"pkg/procfs", []string{"pkg/gpu"}},
	{"pkg/nodefacts", []string{"pkg/gpu"}},
	{"pkg/mps/client", []string{"pkg/mps/mpsv1", "pkg/gpu"}},
	{"pkg/mps/supervisor", []string{"pkg/mps/mpsv1", "pkg/folder", "pkg/gpu"}},
	{"pkg/mps/mpsv1", []string{"pkg/gpu"}},
	{"pkg/mps/status", []string{"pkg/gpu"}},
	{"pkg/cdi", []string{"pkg/gpu"}},
	{"pkg/podresources", []string{"pkg/gpu"}},

	// What the agent has on disk.
	{"pkg/memoryhook", []string{"pkg/limits", "pkg/cgroup", "pkg/procfs", "pkg/gpu"}},
	{"pkg/limits", []string{"pkg/cgroup", "pkg/gpu"}},
	{"pkg/home", []string{"pkg/store", "pkg/folder", "pkg/gpu"}},
	{"pkg/store", []string{"pkg/folder"}},
	{"pkg/folder", nil},
	{"pkg/livefile", nil},
	{"pkg/notify", nil},
	{"pkg/migconfig", []string{"pkg/gpu"}},
	{"pkg/gpu/use", []string{"pkg/gpu/kind", "api", "pkg/gpu"}},
	{"pkg/gpu/kind", []string{"api", "pkg/gpu"}},
	{"pkg/gpu", nil},
	// The public vocabulary imports nothing else of this module.
	{"api", nil},
}

// vendored are interfaces of others that stay where they are translated.
var vendored = []struct {
	path string
	may  []string
}{
	// Every call into the driver may hang, so all go through the guards of pkg/nvml.
	// pkg/cdi only implements the interface, for nvcdi; see the test below.
	{"github.com/NVIDIA/go-nvml", []string{"test", "pkg/nvml", "pkg/nvmlsim", "pkg/cdi"}},
	{"github.com/NVIDIA/go-nvlib", []string{"test"}},
	{"github.com/NVIDIA/nvidia-container-toolkit", []string{"test", "pkg/cdi"}},
	{"k8s.io/client-go", []string{"cmd", "test", "pkg/agent", "pkg/cluster", "pkg/controller", "pkg/plugin", "pkg/kubectlgpu"}},
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
		{"a command may not call NVML without a guard", pkg{module + "cmd/gpu-kubelet-plugin", []string{"github.com/NVIDIA/go-nvml/pkg/nvml"}}, 1},
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

// pkg is a package as go list prints it.
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

// check returns the problems of one package.
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

// Production programs hold no simulator. Programs built with the tag sim do, which
// shows that the list of dependencies is complete.
func TestOnlyProgramsBuiltWithTheTagSimHoldTheSimulator(t *testing.T) {
	for _, program := range []string{"gpu-kubelet-plugin", "gpu-mps-supervisor"} {
		for _, tags := range []string{"", "sim"} {
			held := slices.ContainsFunc(dependencies(t, "cmd/"+program, tags), func(path string) bool {
				return within(path, module+"pkg/nvmlsim")
			})
			if held != (tags == "sim") {
				t.Errorf("%s built with the tags %q depends on pkg/nvmlsim: %v", program, tags, held)
			}
		}
	}
}

func TestTheAgentDoesNotHoldTheSupervisor(t *testing.T) {
	for program, want := range map[string]bool{"gpu-kubelet-plugin": false, "gpu-mps-supervisor": true} {
		if held := slices.Contains(dependencies(t, "cmd/"+program, ""), module+"pkg/mps/supervisor"); held != want {
			t.Errorf("%s depends on pkg/mps/supervisor: %v, want %v", program, held, want)
		}
	}
}

// dependencies returns the packages that a program is linked from.
func dependencies(t *testing.T, folder, tags string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags="+tags, module+folder).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", folder, err)
	}
	return strings.Fields(string(out))
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

func withinAny(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return within(path, f) })
}

// go-nvml has every call of the driver as a function of the package too.
func TestCDIUsesTypesOfNVMLOnly(t *testing.T) {
	const path = "github.com/NVIDIA/go-nvml/pkg/nvml"
	files, err := filepath.Glob("../../pkg/cdi/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("files of pkg/cdi: %v, %v", files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range usedOf(parsed, path) {
			if !slices.Contains([]string{"Interface", "Return", "SUCCESS"}, name) {
				t.Errorf("%s uses nvml.%s: calls into the driver are for pkg/nvml", file, name)
			}
		}
	}
}

// usedOf lists what a file uses of an imported package.
func usedOf(file *ast.File, path string) []string {
	imported := ""
	for _, spec := range file.Imports {
		if strings.Trim(spec.Path.Value, `"`) != path {
			continue
		}
		imported = path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			imported = spec.Name.Name
		}
	}
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := selector.X.(*ast.Ident); ok && imported != "" && x.Name == imported {
				names = append(names, selector.Sel.Name)
			}
		}
		return true
	})
	return names
}

func TestACallFromAnotherPackageIsFound(t *testing.T) {
	const source = `package p
import vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
var lib vendor.Interface = vendor.New()
`
	parsed, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := usedOf(parsed, "github.com/NVIDIA/go-nvml/pkg/nvml"), []string{"Interface", "New"}; !slices.Equal(got, want) {
		t.Errorf("uses %q, want %q", got, want)
	}
}
