// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// handles are the vendor's interfaces, by the prefix under which the library names
// the methods of each: DeviceGetUUID for Device.GetUUID.
var handles = map[string]reflect.Type{
	"":                reflect.TypeFor[nvml.Interface](),
	"Device":          reflect.TypeFor[nvml.Device](),
	"GpuInstance":     reflect.TypeFor[nvml.GpuInstance](),
	"ComputeInstance": reflect.TypeFor[nvml.ComputeInstance](),
	"EventSet":        reflect.TypeFor[nvml.EventSet](),
}

// simulates reports whether the simulator implements a method of an interface. The
// library does not implement the methods that restate those of a handle.
func simulates(prefix, method string) bool {
	if prefix != "" {
		return isSimulated(prefix + method)
	}
	for prefix, handle := range handles {
		name, found := strings.CutPrefix(method, prefix)
		if _, restated := handle.MethodByName(name); prefix != "" && found && restated {
			return false
		}
	}
	return isSimulated(method) || method == "Extensions"
}

func TestAMethodIsSimulatedOrPanicsWithItsName(t *testing.T) {
	_, lib := newTestSim(t, "dgx-h100")
	in := place(t, migOn(t, lib, 1), nvml.GPU_INSTANCE_PROFILE_1_SLICE, 0, 1)
	for prefix, target := range map[string]any{
		"":                lib,
		"Device":          gpuHandle(t, lib, 0),
		"GpuInstance":     in,
		"ComputeInstance": spanning(t, in, nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE),
		"EventSet":        must[nvml.EventSet](t, "event set")(lib.EventSetCreate()),
	} {
		for i := range handles[prefix].NumMethod() {
			method := handles[prefix].Method(i).Name
			if method == "Shutdown" || returnsHandler(handles[prefix].Method(i)) {
				continue
			}
			said := callWithZeros(reflect.ValueOf(target).MethodByName(method))
			switch {
			case simulates(prefix, method) && said != "":
				t.Errorf("%s%s panics: %s", prefix, method, said)
			case !simulates(prefix, method) && !strings.Contains(said, "."+method+" was just called"):
				t.Errorf("%s%s is not in the list of simulated methods: it panics with %q, want its name", prefix, method, said)
			}
		}
	}
}

// returnsHandler reports whether a method returns a handler of go-nvml, which calls
// libnvidia-ml itself. [Versioned] has such calls under other names.
func returnsHandler(m reflect.Method) bool {
	return m.Type.NumOut() == 1 && strings.HasSuffix(m.Type.Out(0).Name(), "Handler")
}

// callWithZeros calls a method with zero values and returns the text of a panic.
func callWithZeros(method reflect.Value) (said string) {
	defer func() {
		if r := recover(); r != nil {
			said = fmt.Sprint(r)
		}
	}()
	var args []reflect.Value
	for i := range method.Type().NumIn() {
		args = append(args, reflect.Zero(method.Type().In(i)))
	}
	method.Call(args)
	return ""
}

// A call of a method that is not simulated would end the driver on simulated
// hardware. So this test reads the sources in the same repository: each selector that is the name of a
// method of NVML must be simulated for every interface with such a method.
func TestEveryNVMLCallOfTheDriverIsSimulated(t *testing.T) {
	calls := 0
	for _, folder := range []string{"../../pkg", "../../cmd", "../../test"} {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			// Tests of packages wrap the library to add methods to it.
			if strings.HasSuffix(path, "_test.go") && folder != "../../test" {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil || !importsNVML(file) {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				selector, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				for prefix, handle := range handles {
					if _, found := handle.MethodByName(selector.Sel.Name); !found {
						continue
					}
					calls++
					if !simulates(prefix, selector.Sel.Name) {
						t.Errorf("%s calls %s, which the simulator's %s does not have", path, selector.Sel.Name, handle)
					}
				}
				return true
			})
			return nil
		})
		noError(t, err)
	}
	if calls < 50 {
		t.Errorf("only %d calls of NVML in the sources: are they elsewhere now?", calls)
	}
}

func importsNVML(file *ast.File) bool {
	for _, spec := range file.Imports {
		if spec.Path.Value == `"github.com/NVIDIA/go-nvml/pkg/nvml"` {
			return true
		}
	}
	return false
}
