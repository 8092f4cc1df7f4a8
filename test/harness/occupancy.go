// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// The modes of use of a GPU.
const (
	Free       = "free"
	Whole      = "whole"
	Shares     = "shares"
	Partitions = "partitions"
	TimeSlices = "timeslices"
	Seats      = "seats"
)

// Occupancy lists the users of each GPU according to the API server: the devices
// that the driver publishes and their allocations to claims.
type Occupancy struct {
	// GPUs by name.
	GPUs []OccupiedGPU `json:"gpus"`
	// Left is what more claims can have.
	Left Left `json:"left"`
}

// Left is what more claims can have. A free GPU counts as such and not in parts.
type Left struct {
	// GPUs without a user.
	GPUs int `json:"gpus"`
	// Memory of GPUs in shares, and their Compute in percent of one.
	Memory  resource.Quantity `json:"memory"`
	Compute int64             `json:"computePercent"`
	// Slots of GPUs that are used in turns.
	Slots int64 `json:"slots"`
}

// OccupiedGPU is a GPU and its users.
type OccupiedGPU struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// Mode is one of Free, Whole, Shares, Partitions, TimeSlices and Seats. Several, joined by
	// plus signs, would be an error of the scheduler or the driver.
	Mode string   `json:"mode"`
	Pods []Sitter `json:"pods"`
	// Memory, Compute (percent) and Slots that are given to pods, and what of
	// them is left in the GPU's mode. TimeSlices limit neither memory nor compute, so
	// these are not given then, and none is left.
	Memory  Account `json:"memory"`
	Compute Account `json:"computePercent"`
	Slots   Account `json:"slots"`
}

// Account of a capacity.
type Account struct {
	Given resource.Quantity `json:"given"`
	Left  resource.Quantity `json:"left"`
}

// Sitter is a pod on a GPU. Pods that name one claim have the same of it.
type Sitter struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// App is the pod's label of that name, or its own name.
	App string `json:"app"`
	// Device that the pod was given: the GPU, or one of it.
	Device string `json:"device"`
}

// Occupancy of all GPUs that the driver publishes.
func (c *Cluster) Occupancy(ctx context.Context) (Occupancy, error) {
	devices, err := c.Devices(ctx)
	if err != nil {
		return Occupancy{}, err
	}
	seats, err := newSeats(devices)
	if err != nil {
		return Occupancy{}, err
	}
	apps, err := c.apps(ctx)
	if err != nil {
		return Occupancy{}, err
	}
	claims, err := c.Client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return Occupancy{}, err
	}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver != DriverName {
				continue
			}
			var pods []Sitter
			for _, user := range claim.Status.ReservedFor {
				app := cmp.Or(apps[claim.Namespace+"/"+user.Name], user.Name)
				pods = append(pods, Sitter{Namespace: claim.Namespace, Name: user.Name, App: app, Device: result.Device})
			}
			if err := seats.take(result, pods); err != nil {
				return Occupancy{}, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
			}
		}
	}
	return seats.occupancy(), nil
}

// apps are the labels of all pods that say what they are, by namespace/name.
func (c *Cluster) apps(ctx context.Context) (map[string]string, error) {
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "app"})
	if err != nil {
		return nil, err
	}
	apps := map[string]string{}
	for _, pod := range pods.Items {
		apps[pod.Namespace+"/"+pod.Name] = pod.Labels["app"]
	}
	return apps, nil
}

// seats collects the allocations of each GPU.
type seats map[gpu.PCIAddress]*seat

// seat is a GPU with the total and the allocated amount of each capacity.
type seat struct {
	uuid       string
	has, given map[resourceapi.QualifiedName]resource.Quantity
	modes      map[string]bool
	pods       []Sitter
}

func newSeats(devices map[string]resourceapi.Device) (seats, error) {
	all := seats{}
	for _, device := range devices {
		name, err := kind.Parse(device.Name)
		if err != nil {
			return nil, err
		}
		if !name.IsWholeGPU() {
			continue
		}
		s, known := all[name.Address]
		if !known {
			s = &seat{has: map[resourceapi.QualifiedName]resource.Quantity{}, given: map[resourceapi.QualifiedName]resource.Quantity{}, modes: map[string]bool{}, pods: []Sitter{}}
			all[name.Address] = s
		}
		s.uuid = text(device.Attributes["uuid"])
		for capacity, has := range device.Capacity {
			if capacity == v1alpha1.CapacityMemory && name.Kind != kind.GPU {
				continue // of one seat, or the same once more
			}
			s.has[capacity] = has.Value
		}
	}
	return all, nil
}

// take assigns a device to pods.
func (all seats) take(result resourceapi.DeviceRequestAllocationResult, pods []Sitter) error {
	name, err := kind.Parse(result.Device)
	if err != nil {
		return err
	}
	if name.Kind.Scope() == kind.ScopeNode {
		return nil // a monitoring agent uses no GPU
	}
	s, known := all[name.Address]
	if !known {
		return fmt.Errorf("it holds %s, and no such GPU is published", result.Device)
	}
	s.pods = append(s.pods, pods...)
	for capacity, taken := range result.ConsumedCapacity {
		sum := s.given[capacity]
		sum.Add(taken)
		s.given[capacity] = sum
	}
	memory, shared := result.ConsumedCapacity[v1alpha1.CapacityMemory]
	switch {
	case name.Kind.Takes() == kind.TakesSlots:
		s.modes[TimeSlices] = true
	case name.Kind.Takes() == kind.TakesSeats:
		s.modes[Seats] = true
	case name.IsPartition():
		s.modes[Partitions] = true
	case shared && memory.Cmp(s.has[v1alpha1.CapacityMemory]) < 0:
		s.modes[Shares] = true
	default:
		s.modes[Whole] = true
		// Who has the GPU for itself reserves no compute, and has all of it.
		s.given[v1alpha1.CapacityMemory] = s.has[v1alpha1.CapacityMemory]
		s.given[v1alpha1.CapacityCompute] = s.has[v1alpha1.CapacityCompute]
	}
	return nil
}

func (all seats) occupancy() Occupancy {
	var o Occupancy
	for _, address := range slices.SortedFunc(maps.Keys(all), func(a, b gpu.PCIAddress) int { return cmp.Compare(a.String(), b.String()) }) {
		s := all[address]
		slices.SortFunc(s.pods, func(a, b Sitter) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.App, b.App), cmp.Compare(a.Name, b.Name))
		})
		g := OccupiedGPU{
			Name: address.DeviceName(),
			UUID: s.uuid,
			Mode: cmp.Or(strings.Join(slices.Sorted(maps.Keys(s.modes)), "+"), Free),
			Pods: s.pods,
		}
		counted := s.modes[Shares] || len(s.modes) == 0
		g.Memory = s.account(v1alpha1.CapacityMemory, counted)
		g.Compute = s.account(v1alpha1.CapacityCompute, counted)
		g.Slots = s.account(v1alpha1.CapacitySlots, s.modes[TimeSlices] || len(s.modes) == 0)
		switch g.Mode {
		case Free:
			o.Left.GPUs++
		case Shares:
			o.Left.Memory.Add(g.Memory.Left)
			o.Left.Compute += g.Compute.Left.Value()
		case TimeSlices:
			o.Left.Slots += g.Slots.Left.Value()
		}
		o.GPUs = append(o.GPUs, g)
	}
	return o
}

// account of a capacity, of which more can be had only if it is open.
func (s *seat) account(capacity resourceapi.QualifiedName, open bool) Account {
	a := Account{Given: s.given[capacity]}
	if open {
		a.Left = s.has[capacity].DeepCopy()
		a.Left.Sub(a.Given)
	}
	return a
}

// WriteTable prints it for people.
func (o Occupancy) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GPU\tMODE\tPODS\tMEMORY GIVEN\tLEFT\tCOMPUTE GIVEN\tLEFT\tSLOTS GIVEN\tLEFT") //nolint:errcheck // Flush reports it
	for _, g := range o.GPUs {
		memory, compute, slots := g.Memory.cells(""), g.Compute.cells(" %"), g.Slots.cells("")
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", g.Name, g.Mode, cmp.Or(g.crowd(), "-"), memory, compute, slots) //nolint:errcheck // Flush reports it
	}
	fmt.Fprintf(table, "\nLeft: %d free GPUs; on GPUs in shares %s and %d %% of one GPU's compute; %d time slices.\n", //nolint:errcheck // Flush reports it
		o.Left.GPUs, o.Left.Memory.String(), o.Left.Compute, o.Left.Slots)
	return table.Flush()
}

// cells returns the allocated and the remaining amount, "-" for none.
func (a Account) cells(unit string) string {
	cell := func(q resource.Quantity) string {
		if q.IsZero() {
			return "-"
		}
		return q.String() + unit
	}
	return cell(a.Given) + "\t" + cell(a.Left)
}

// crowd are the GPU's pods, counted by what they are: "8 × serving/server".
func (g OccupiedGPU) crowd() string {
	count := map[string]int{}
	for _, pod := range g.Pods {
		count[pod.Namespace+"/"+pod.App]++
	}
	var parts []string
	for _, app := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d × %s", count[app], app))
	}
	return strings.Join(parts, ", ")
}
