// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/allocator"
)

const (
	// writers is the number of requests at a time.
	writers = 32
	// patterns is the number of different nodes in a fleet that claims fill.
	patterns  = 16
	namespace = metav1.NamespaceDefault
)

// fleet is a number of equal nodes.
type fleet struct {
	publication publication
	hardware    gpu.Node
	classes     []*resourceapi.DeviceClass
	nodes       int
	seed        uint64
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// gpus returns how many GPUs of a node claims can hold.
func (f fleet) gpus() float64 { return cmp.Or(f.publication.gpus, float64(len(f.hardware.GPUs))) }

// slices returns the ResourceSlices of a node of which claims take memory.
func (f fleet) slices(node string, taken catalog.Taken) ([]*resourceapi.ResourceSlice, error) {
	resources, err := f.publication.describe(node, f.hardware, taken)
	return allocator.Slices(node, resources), err
}

// bytes returns the size of a node's slices as JSON.
func (f fleet) bytes() (int, error) {
	all, err := f.slices(nodeName(0), nil)
	sum := 0
	for _, slice := range all {
		text, err := json.Marshal(slice)
		if err != nil {
			return 0, err
		}
		sum += len(text)
	}
	return sum, err
}

// write writes the classes, the nodes and their slices.
func (f fleet) write(ctx context.Context, client kubernetes.Interface) error {
	for _, class := range f.classes {
		if _, err := client.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return inParallel(ctx, f.nodes, func(ctx context.Context, i int) error {
		node := nodeObject(nodeName(i))
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
		all, err := f.slices(node.Name, nil)
		if err != nil {
			return err
		}
		for _, slice := range all {
			if _, err := client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// nodeObject returns a node that is ready for pods.
func nodeObject(name string) *corev1.Node {
	amounts := corev1.ResourceList{"cpu": resource.MustParse("224"), "memory": resource.MustParse("2Ti"), "pods": resource.MustParse("250")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// allocation is a claim that fills the fleet.
type allocation struct {
	kind    claimKind
	results []resourceapi.DeviceRequestAllocationResult
}

// pattern is a node that claims fill more and more.
type pattern struct {
	node   *allocator.Node
	random *rand.Rand
	held   float64
	claims []allocation
}

// filling fills a fleet in steps. Each node has the claims of one pattern.
type filling struct {
	fleet    fleet
	patterns []*pattern
	written  int // claims of each pattern
}

func newFilling(f fleet) (*filling, error) {
	fill := &filling{fleet: f}
	for i := range patterns {
		resources, err := f.publication.describe(nodeName(i), f.hardware, nil)
		if err != nil {
			return nil, err
		}
		fill.patterns = append(fill.patterns, &pattern{
			node: allocator.NewNode(resources, allocator.Features(), f.classes...), random: rand.New(rand.NewPCG(f.seed, uint64(i))),
		})
	}
	return fill, nil
}

// grow adds claims of random kinds until the part of the node's GPUs is held.
func (p *pattern) grow(ctx context.Context, kinds []claimKind, gpus float64) ([]allocation, error) {
	var added []allocation
	for left := slices.Clone(kinds); len(left) > 0 && p.held < gpus; {
		i := p.random.IntN(len(left))
		k := left[i]
		results, err := p.node.Allocate(ctx, fmt.Sprint(len(p.claims)), *k.devices)
		if errors.Is(err, allocator.ErrNoFit) || err == nil && p.held+k.gpus > gpus+0.25 {
			p.node.Free(fmt.Sprint(len(p.claims)))
			left = slices.Delete(left, i, i+1)
			continue
		}
		if err != nil {
			return nil, err
		}
		p.held += k.gpus
		p.claims = append(p.claims, allocation{k, results})
		added = append(added, p.claims[len(p.claims)-1])
	}
	return added, nil
}

// to writes claims until they hold the percentage of the fleet. It returns the number
// that all fillings have written.
func (f *filling) to(ctx context.Context, client kubernetes.Interface, percent int) (int, error) {
	kinds := f.fleet.publication.fillingKinds()
	var added [patterns][]allocation
	for i, p := range f.patterns {
		var err error
		if added[i], err = p.grow(ctx, kinds, f.fleet.gpus()*float64(percent)/100); err != nil {
			return 0, err
		}
	}
	err := inParallel(ctx, f.fleet.nodes, func(ctx context.Context, i int) error {
		for j, a := range added[i%patterns] {
			if err := writeAllocated(ctx, client, fmt.Sprintf("held-%d-%d-%d", percent, i, j), nodeName(i%patterns), nodeName(i), a); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range f.fleet.nodes {
		f.written += len(added[i%patterns])
	}
	return f.written, errors.Join(err, f.publish(ctx, client))
}

// publish updates the slices whose order of devices has changed with the claims, as agents do.
func (f *filling) publish(ctx context.Context, client kubernetes.Interface) error {
	return inParallel(ctx, f.fleet.nodes, func(ctx context.Context, i int) error {
		before, err := f.fleet.slices(nodeName(i), nil)
		if err != nil {
			return err
		}
		after, err := f.fleet.slices(nodeName(i), f.patterns[i%patterns].taken())
		if err != nil {
			return err
		}
		for j, slice := range after {
			if equality.Semantic.DeepEqual(slice, before[j]) {
				continue
			}
			there, err := client.ResourceV1().ResourceSlices().Get(ctx, slice.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			there.Spec = slice.Spec
			if _, err := client.ResourceV1().ResourceSlices().Update(ctx, there, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// taken returns the memory that claims take of the pattern's devices.
func (p *pattern) taken() catalog.Taken {
	taken := catalog.Taken{}
	for _, a := range p.claims {
		for _, result := range a.results {
			memory := result.ConsumedCapacity[v1alpha1.CapacityMemory]
			of := taken[result.Device]
			of.Whole = of.Whole || result.ShareID == nil
			of.Bytes += uint64(memory.Value())
			taken[result.Device] = of
		}
	}
	return taken
}

// writeAllocated writes a claim with the results of a pattern's node for another node.
func writeAllocated(ctx context.Context, client kubernetes.Interface, name, from, to string, a allocation) error {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimSpec{Devices: *a.kind.devices}}
	claim, err := client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	claim.Status.Allocation = allocated(from, to, a)
	_, err = client.ResourceV1().ResourceClaims(namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// allocated returns the allocation of a pattern's node, for another node.
func allocated(from, to string, a allocation) *resourceapi.AllocationResult {
	results := slices.Clone(a.results)
	for i := range results {
		results[i].Pool = to + results[i].Pool[len(from):]
	}
	return &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: results},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{to}}},
		}}},
	}
}

// inParallel calls do for each number below n.
func inParallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}
