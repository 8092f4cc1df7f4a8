package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/allocatortest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// measureAllocator takes the scheduler's cost of a claim, in this process and
// without a cluster.
func (b *bench) measureAllocator(ctx context.Context, node gpu.Node, f *figures) error {
	classes, err := readClasses(b.classes)
	if err != nil {
		return err
	}
	progress("allocating every kind of claim %d times, on our slices and on naive ones", b.rounds)
	ours := catalog.Catalog{Pool: b.node, Offer: catalog.Offer{Share: true, MIG: true}}
	f.Allocator, err = allocatortest.Compare(ctx, ours, node, b.rounds, classes...)
	return err
}

func readClasses(file string) ([]*resourceapi.DeviceClass, error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, fmt.Errorf("read the DeviceClasses: %w", err)
	}
	var classes []*resourceapi.DeviceClass
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if meta.Kind != "DeviceClass" {
			continue
		}
		class := &resourceapi.DeviceClass{}
		if err := yaml.UnmarshalStrict([]byte(document), class); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		classes = append(classes, class)
	}
	return classes, nil
}
