package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gpu-dra/gpu-dra-driver/pkg/controller"
)

// printSlices writes what would be published to w, from one look at the GPUs.
func printSlices(ctx context.Context, o *options, w io.Writer) (err error) {
	hw, err := openHardware(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hw.close()) }() //nolint:contextcheck // closing comes after ctx has ended
	node, err := hw.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("look at the GPUs: %w", err)
	}
	slices, err := controller.Slices(ctx, o.driverName, o.nodeName, o.catalog().Resources(node, nil, nil))
	if err != nil {
		return err
	}
	return controller.WriteList(w, slices)
}
