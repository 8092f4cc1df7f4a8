// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// codeOf returns the code that explains a finding; the zero value if none does.
func codeOf(f doctor.Finding) doctor.Code {
	_, section, _ := strings.Cut(f.Read, "#")
	codes := doctor.Codes()
	if i := slices.IndexFunc(codes, func(c doctor.Code) bool { return c.Name == section }); i >= 0 {
		return codes[i]
	}
	return doctor.Code{}
}

func TestCodes(t *testing.T) {
	var sources strings.Builder
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.HasSuffix(file, "_test.go") {
			sources.Write(text)
		}
	}
	form, seen := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`), map[string]bool{}
	for _, c := range doctor.Codes() {
		if !form.MatchString(c.Name) || seen[c.Name] {
			t.Errorf("code %q is there twice or has other characters", c.Name)
		}
		seen[c.Name] = true
		if c.Summary == "" || strings.HasSuffix(c.Summary, ".") || c.State == "" || c.State == doctor.OK {
			t.Errorf("%s: incomplete: %+v", c.Name, c)
		}
		isCause := slices.ContainsFunc(cause.All(), func(of cause.Cause) bool { return of.Code == c.Name })
		if !isCause && c.Check != "health" && c.Check != "" && strings.Count(sources.String(), `"`+c.Name+`"`) < 2 {
			t.Errorf("no check finds %s", c.Name)
		}
	}
	if len(seen) < 100 {
		t.Errorf("%d codes, want those of all checks and causes", len(seen))
	}
}

func TestFindingsOfACodeAreMuted(t *testing.T) {
	c := healthy(newWorld(t))
	c.Facts["a"].Value.SwapBytes, c.Facts["b"].Value.SwapBytes = fact(uint64(1<<30)), fact(uint64(1<<30))
	c.Facts["a"].Value.GPUs[0].LinkWidth = fact(8)
	findings := doctor.Examine(c)
	require.NoError(t, doctor.Mute(findings, []string{"swap-on", "xid-79"}))
	for _, f := range findings {
		if want := f.Check == "swap" && f.State == doctor.Warning; f.Muted != want {
			t.Errorf("muted: %t, want %t: %+v", f.Muted, want, f)
		}
	}
	require.Error(t, "a code that does not exist", doctor.Mute(findings, []string{"swap"}), gpu.ErrInvalid, `"swap"`)
}

// The driver may report an XID that this release does not know.
func TestTheCodeOfATaintIsItsCause(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		key, value        string
		state             doctor.State
		code, read        string
		meaning, forAdmin string
	}{
		"an XID":                 {"gpu.nvidia.com/unhealthy", "xid-79", doctor.Problem, "xid-79", "#xid-79", "fallen off the bus", "kubectl gpu drain a/gpu-18-00"},
		"an unknown XID":         {"gpu.nvidia.com/unhealthy", "xid-1234", doctor.Problem, "xid-1234", "#xid", "XID", "nvidia-smi --gpu-reset --id 0000:18:00.0"},
		"an unknown action":      {"gpu.nvidia.com/unhealthy", "recovery-dance", doctor.Problem, "recovery-dance", "#recovery", "recovery action", "on node a"},
		"an unknown fault":       {"gpu.nvidia.com/unhealthy", "gone-mad", doctor.Problem, "fault", "#fault", "does not know", "of node a"},
		"a foreign process":      {"gpu.nvidia.com/in-use", "foreign-process", doctor.Problem, "foreign-process", "#foreign-process", "process without a claim", "agent of node a"},
		"a withdrawn offer":      {"gpu.nvidia.com/withdrawn", "mig", doctor.Warning, "withdrawn", "#withdrawn", "no longer offers", "nothing"},
		"a rule's own taint":     {"example.com/maintenance", "", doctor.Warning, "taint-of-rule", "#taint-of-rule", "new claims do not get it", "delete the DeviceTaintRule"},
		"a compute mode":         {"gpu.nvidia.com/compute-mode", "prohibited", doctor.Warning, "compute-mode", "#compute-mode", "compute mode", "--id 0000:18:00.0"},
		"a device plugin":        {"gpu.nvidia.com/in-use", "device-plugin", doctor.Warning, "device-plugin", "#device-plugin", "device plugin", "from node a"},
		"a GPU that is hung":     {"gpu.nvidia.com/unhealthy", "timeout", doctor.Problem, "timeout", "#timeout", "driver hangs", "processes that cannot be killed"},
		"a forgotten claim":      {"gpu.nvidia.com/in-use", "unneeded-claim", doctor.Warning, "unneeded-claim", "#unneeded-claim", "forgotten", "node a"},
		"an unexplained use":     {"gpu.nvidia.com/in-use", "magic", doctor.Warning, "taint-of-rule", "#taint-of-rule", "", "kubectl get devicetaintrules"},
		"a MIG mode that is set": {"gpu.nvidia.com/mig-mode", "enabled", doctor.Warning, "mig-mode", "#mig-mode", "MIG mode", "node a"},
	} {
		t.Run(name, func(t *testing.T) {
			c := healthy(w)
			c.Slices[0].Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: tc.key, Value: tc.value, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
			f := doctor.Examine(c)[0]
			if f.State != tc.state || f.Code != tc.code || !strings.HasSuffix(f.Read, tc.read) || !strings.Contains(f.Meaning, tc.meaning) || !strings.Contains(f.Remedy, tc.forAdmin) {
				t.Errorf("got %+v, want %+v", f, tc)
			}
			if err := doctor.Mute([]doctor.Finding{f}, []string{f.Code}); err != nil {
				t.Errorf("the code of a finding cannot be muted: %v", err)
			}
		})
	}
}
