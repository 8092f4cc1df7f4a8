// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// addNeighbors adds the NICs and CPUs of a DGX H100 to a node.
func addNeighbors(t *testing.T, w *fleettest.World, node string) {
	t.Helper()
	text, err := os.ReadFile("../../test/e2e/seconddriver/dgx-h100.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var drivers []struct {
		Driver  string
		Devices []resourceapi.Device
	}
	if err := yaml.Unmarshal(text, &drivers); err != nil {
		t.Fatal(err)
	}
	for _, d := range drivers {
		slice := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
			Driver: d.Driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: d.Devices,
		}}
		slice.Name = node + "-" + d.Driver
		w.Slices = append(w.Slices, slice)
	}
}

// busy returns a cluster of one node whose GPUs are used in all ways.
func busy(t *testing.T) *fleettest.World {
	w := fleettest.New(t, "dgx=dgx-h100 share.mig.timeslice")
	addNeighbors(t, w, "dgx")
	w.Hold("dgx", "training", "count=2")
	for i, memory := range []string{"30Gi", "10Gi", "10Gi", "5Gi", "5Gi"} {
		w.Hold("dgx", fmt.Sprintf("notebook-%d", i), "class=mps.nvidia.com compute=10 memory="+memory)
	}
	w.Hold("dgx", "inference", "class=mig-1g.10gb")
	w.Hold("dgx", "batch", "class=timeslice.nvidia.com")
	w.Taint("gpu-d1-00", "xid-79")
	nic := fleettest.Claim("uplink", "")
	nic.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Driver: "dra.net", Pool: "dgx", Device: "pci-0000-40-00-0"},
	}}}
	w.Claims = append(w.Claims, nic)
	return w
}

// draw returns the picture of a node.
func draw(t *testing.T, w *fleettest.World, node string) string {
	t.Helper()
	c := rows.New(w.Objects, v1alpha1.DriverName, nil)
	nodes := slices.DeleteFunc(c.Nodes(), func(n fleet.Node) bool { return n.Name != node })
	if len(nodes) != 1 {
		t.Fatalf("no node %s", node)
	}
	var out strings.Builder
	if err := WriteTopology(&out, c, nodes[0]); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPicture(t *testing.T) {
	out := draw(t, busy(t), "dgx")
	// The picture of the documents.
	const golden = "../../docs/images/topology.svg"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	// A line for each element, so that a difference can be read.
	apart := func(s string) []string { return strings.Split(strings.ReplaceAll(s, "><", ">\n<"), "\n") }
	if diff := cmp.Diff(apart(string(want)), apart(out)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// drawn is a rectangle of a picture.
type drawn struct {
	class      string
	x, y, w, h int
}

func (a drawn) contains(b drawn) bool {
	return a.x <= b.x && a.y <= b.y && b.x+b.w <= a.x+a.w && b.y+b.h <= a.y+a.h
}

func (a drawn) overlaps(b drawn) bool {
	return a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h && b.y < a.y+a.h
}

// readPicture returns the rectangles of a picture by their classes, and all text in it. It
// fails unless the picture is XML.
func readPicture(t *testing.T, svg string) (map[string][]drawn, string) {
	t.Helper()
	all := map[string][]drawn{}
	var text strings.Builder
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return all, text.String()
		}
		if err != nil {
			t.Fatalf("the picture is not XML: %v\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.CharData:
			text.Write(token)
			text.WriteString("\n")
		case xml.StartElement:
			values := map[string]string{}
			for _, a := range token.Attr {
				values[a.Name.Local] = a.Value
			}
			if slices.Contains([]string{"script", "foreignObject", "image"}, token.Name.Local) {
				t.Errorf("the picture has an element %s", token.Name.Local)
			}
			if token.Name.Local == "rect" {
				r := drawn{class: values["class"]}
				for name, to := range map[string]*int{"x": &r.x, "y": &r.y, "width": &r.w, "height": &r.h} {
					if *to, err = strconv.Atoi(values[name]); err != nil {
						t.Fatal(err)
					}
				}
				all[r.class] = append(all[r.class], r)
			}
		}
	}
}

func TestPicturesOfAllMachines(t *testing.T) {
	models, err := filepath.Glob("../../simulator/nvmlsim/models/*.yaml")
	if err != nil || len(models) < 10 {
		t.Fatal(models, err)
	}
	for _, file := range models {
		model := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(model, func(t *testing.T) {
			w := fleettest.New(t, "a="+model+" share")
			w.Hold("a", "whole", "")
			addNeighbors(t, w, "a")
			out := draw(t, w, "a")
			rects, text := readPicture(t, out)
			node := w.Fleet().Nodes()[0]
			for _, g := range node.GPUs {
				if !strings.Contains(text, "GPU "+g.Name) {
					t.Errorf("no GPU %s", g.Name)
				}
			}
			for _, d := range w.Fleet().Neighbors("a") {
				if !strings.Contains(text, "device "+d.ID.Device) {
					t.Errorf("no device %s", d.ID.Device)
				}
			}
			if !strings.Contains(text, "default/whole") {
				t.Error("no claim default/whole")
			}
			for inner, outer := range map[string]string{"numa": "ground", "root": "numa", "bar": "ground", "promised": "box", "meter": "box"} {
				for _, r := range rects[inner] {
					if !slices.ContainsFunc(rects[outer], func(o drawn) bool { return o.contains(r) }) {
						t.Errorf("%+v is in no %s", r, outer)
					}
				}
			}
			if len(rects["box"]) < len(node.GPUs) || len(rects["root"]) == 0 {
				t.Errorf("%d boxes, %d roots", len(rects["box"]), len(rects["root"]))
			}
			for _, r := range rects["box"] {
				if !slices.ContainsFunc(rects["numa"], func(o drawn) bool { return o.contains(r) }) {
					t.Errorf("%+v is in no NUMA node", r)
				}
			}
			for _, class := range []string{"numa", "root", "box", "bar"} {
				for i, a := range rects[class] {
					for _, b := range rects[class][i+1:] {
						if a.overlaps(b) {
							t.Errorf("%+v overlaps %+v", a, b)
						}
					}
				}
			}
		})
	}
}

// Other tenants choose the names and attributes in a picture.
func TestPictureOfHostileNames(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	hostile := `</text><script>alert(1)</script>"'&` + "\x00\u202e"
	for i := range w.Slices[0].Spec.Devices {
		attributes := w.Slices[0].Spec.Devices[i].Attributes
		for name, value := range attributes {
			if value.StringValue != nil && name != "uuid" {
				attributes[name] = resourceapi.DeviceAttribute{StringValue: &hostile}
			}
		}
	}
	out := draw(t, w, "a")
	if _, text := readPicture(t, out); !strings.Contains(text, "<script>alert(1)</script>\"'&\ufffd\ufffd") {
		t.Errorf("the name is changed: %s", text)
	}
}

// A GPU with many claims, and nodes whose devices publish no place.
func TestPictureOfManyClaimsAndNoPlace(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	for i := range 10 {
		w.Hold("a", fmt.Sprintf("claim-%d", i), "class=mps.nvidia.com memory=1Gi")
	}
	for i := range w.Slices[0].Spec.Devices {
		for _, name := range []string{"numaNode", "pcieRoot"} {
			delete(w.Slices[0].Spec.Devices[i].Attributes, resourceapi.QualifiedName("resource.kubernetes.io/"+name))
		}
	}
	out := draw(t, w, "a")
	_, text := readPicture(t, out)
	for _, want := range []string{"NUMA node not published", "PCIe root not published", "and 7 more claims", "default/claim-9"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the picture", want)
		}
	}
}
