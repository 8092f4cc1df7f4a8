package gpu

import (
	"strings"
	"testing"
)

func TestADriverElsewhereIsFoundAndItsCLibraryIsNot(t *testing.T) {
	if env := DriverRoot("/").Environment(); env != nil {
		t.Errorf("a driver in / needs %v", env)
	}
	root := DriverRoot("/run/nvidia/driver")
	if got := root.Binary("nvidia-smi"); got != "/run/nvidia/driver/usr/bin/nvidia-smi" {
		t.Errorf("nvidia-smi is %s", got)
	}
	libraries, _ := strings.CutPrefix(root.Environment()[0], "LD_LIBRARY_PATH=")
	own, drivers := strings.Index(libraries, "/usr/lib/x86_64-linux-gnu"), strings.Index(libraries, "/run/nvidia/driver/usr/lib/x86_64-linux-gnu")
	if own < 0 || drivers < 0 || own > drivers {
		t.Errorf("libraries are looked for in %s, want the system's own first", libraries)
	}
}
