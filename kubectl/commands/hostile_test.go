// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
)

// hostile moves the cursor and clears the screen by a C1 control. It also changes the order
// of characters and adds a line.
const hostile = "evil\x1b[2J\u009b1A\u202egpj.exe\x07\nNode a: all is well\tok"

// control returns the characters that a terminal must not get.
func control(text string) []rune {
	return slices.DeleteFunc([]rune(text), func(r rune) bool { return r == '\n' || r == '\t' || unicode.IsPrint(r) })
}

// hostileWorld returns a cluster whose other users and drivers write escape sequences. They
// are in every text that the API server does not check.
func hostileWorld(t *testing.T) *fake.Clientset {
	w := shared(t)
	pending := fleettest.Pod("pending")
	w.Pods, w.Claims = append(w.Pods, pending), append(w.Claims, fleettest.Claim("pending", "count=9"))
	pending.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: hostile}}
	for _, slice := range w.Slices {
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			device.Attributes["productName"] = resourceapi.DeviceAttribute{StringValue: ptr.To(hostile)}
			device.Taints = append(device.Taints, resourceapi.DeviceTaint{Key: "example.com/t", Value: hostile, Effect: resourceapi.DeviceTaintEffectNoSchedule})
		}
	}
	for _, claim := range w.Claims {
		claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Device: "gpu-18-00", Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Message: hostile}}}}
	}
	client := server(w)
	client.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.EventList{Items: []corev1.Event{{Reason: "Failed", Message: hostile, Type: corev1.EventTypeWarning}}}, nil
	})
	return client
}

func TestControlCharactersOfTheClusterDoNotReachTheTerminal(t *testing.T) {
	client := hostileWorld(t)
	for _, args := range [][]string{
		nil, {"-o", "wide"}, {"-o", "json"}, {"-o", "yaml"}, {"who", "-A", "-o", "wide"}, {"explain", "pending", "-n", "default"},
		{"explain", "whole", "-n", "default"}, {"explain", "pending", "-n", "default", "-o", "json"}, {"explain", "pending", "-n", "default", "-o", "yaml"},
		{"doctor", "--all", "-o", "wide"}, {"doctor"}, {"topo", "a"}, {"usage"},
		{"-o", "jsonpath={range .items[*]}{.model} {.taints}{'\\n'}{end}"}, {"get", hostile},
		{"explain", hostile}, {"get", "-o", hostile}, {hostile},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			out, problems := run(t, client, args...)
			text := out + problems
			if found := control(text); len(found) > 0 {
				t.Errorf("prints %q:\n%q", found, text)
			}
			// Lines mean nothing in a picture, and the arguments are the user's own.
			if !slices.Contains(args, hostile) && strings.Contains(text, "\nNode a: all is well") {
				t.Errorf("a message adds a line:\n%s", text)
			}
		})
	}
}

func TestControlCharactersAreNotInASysdump(t *testing.T) {
	name := filepath.Join(t.TempDir(), "dump.tar.gz")
	run(t, hostileWorld(t), "sysdump", "--driver-namespace", "gpus", "--to", name)
	seen := 0
	for file, text := range unpack(t, name) {
		if found := control(text); len(found) > 0 {
			t.Errorf("%s has %q", file, found)
		}
		seen += strings.Count(text, "evil")
	}
	if seen == 0 {
		t.Error("the messages are lost")
	}
}
