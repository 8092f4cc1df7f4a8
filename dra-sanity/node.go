// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// startLimit is how long a driver may take to register and to publish.
const startLimit = time.Minute

// waits are the limits and pauses of the scenarios. The tests of this program wait less.
type waits struct {
	// call is for an answer, and again is for the right one.
	call, again time.Duration
	// stable is without a change, outage without an API server, and begin after a start.
	stable, outage, begin time.Duration
	// end is from SIGTERM to the end.
	end time.Duration
	// files is for connections of finished calls, which close a moment later.
	files time.Duration
}

func defaultWaits() waits {
	return waits{
		call:   45 * time.Second, // the default limit of the kubelet
		again:  2 * time.Minute,  // the kubelet repeats a call after 90 seconds
		stable: 15 * time.Second, outage: 10 * time.Second, begin: 3 * time.Second,
		end:   30 * time.Second, // the default terminationGracePeriodSeconds of a pod
		files: 10 * time.Second,
	}
}

var (
	// errSkipped wraps the reason why a scenario says nothing about a driver.
	errSkipped = errors.New("skipped")
	// errNoDriver is returned by scenarios that end the driver.
	errNoDriver = fmt.Errorf("%w: it ends the driver, which needs --exec", errSkipped)
	errNoServer = fmt.Errorf("%w: it needs the API server of --exec", errSkipped)
	// errEnded is why nothing more is to be waited for.
	errEnded = errors.New("the driver has ended")
	// errRefused is wrapped by the error of a call that the driver answers with an error.
	errRefused = errors.New("the driver refuses the call")
)

// node is a node of Kubernetes with a driver, whose kubelet is this program.
type node struct {
	name, driverName string
	// kubelet, registry and cdi are folders.
	kubelet, registry, cdi string
	kubeconfig             string
	client                 kubernetes.Interface
	// server and driver are nil if the driver runs in a cluster.
	server *apiServer
	driver *driver
	// command starts the driver; log has its output.
	command, log string
	many         int
	usesNRI      bool
	waits        waits

	// claims of the present scenario, which its end unprepares.
	claims []*resourceapi.ResourceClaim
	// emptied is set if it has removed the CDI specs.
	emptied bool
}

// until calls check until it returns nil or that the driver has ended, and returns its last error after the limit.
func until(ctx context.Context, limit time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", limit, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// cache returns the CDI specs that are in the folder now, as a container runtime reads them.
func (n *node) cache() (*cdi.Cache, error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(n.cdi), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", n.cdi, err)
	}
	return cache, nil
}

// resolve checks that a container runtime finds CDI devices in the folder of CDI specs.
func (n *node) resolve(ids ...string) error {
	cache, err := n.cache()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if cache.GetDevice(id) == nil {
			err = errors.Join(append(slices.Concat(slices.Collect(maps.Values(cache.GetErrors()))...), err, fmt.Errorf("CDI device %s is in no valid spec in %s", id, n.cdi))...)
		}
	}
	return err
}

// specs returns the names of the files in the folder of CDI specs.
func (n *node) specs() ([]string, error) {
	entries, err := os.ReadDir(n.cdi)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}

// present returns the files in the folder of CDI specs and the devices in them, whatever their names are. It returns
// none in a cluster, where other drivers use the folder as well.
func (n *node) present() ([]string, error) {
	if n.driver == nil {
		return nil, nil
	}
	names, err := n.specs()
	cache, cacheErr := n.cache()
	if err = errors.Join(err, cacheErr); err != nil {
		return nil, err
	}
	return append(names, cache.ListDevices()...), nil
}

// nothingNew checks that later claims leave no more than a first one. A driver may write specs for all claims once.
func (n *node) nothingNew(first []string) error {
	now, err := n.present()
	if more := without(now, first); len(more) > 0 {
		return fmt.Errorf("later claims leave more in %s: %s", n.cdi, strings.Join(more, ", "))
	}
	return err
}

// emptyCDI removes all CDI specs, as a clean-up of /var/run does. The end of the scenario restarts the
// driver, so that the next one is not tested for the loss.
func (n *node) emptyCDI() error {
	if n.driver == nil {
		return fmt.Errorf("%w: the folder of CDI specs may have those of other drivers", errSkipped)
	}
	names, err := n.specs()
	if err == nil && len(names) == 0 {
		return fmt.Errorf("%w: the driver has written no CDI spec", errSkipped)
	}
	n.emptied = true
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(n.cdi, name)))
	}
	return err
}

// cdiIDs returns the CDI devices of prepared devices, sorted.
func cdiIDs(devices []*drapb.Device) []string {
	var ids []string
	for _, device := range devices {
		ids = append(ids, device.CdiDeviceIds...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// gone checks that CDI devices of a claim do not resolve any more. Devices of a spec that is not the claim's stay.
func (n *node) gone(claim *resourceapi.ResourceClaim, ids []string) error {
	for _, id := range ids {
		if strings.Contains(id, string(claim.UID)) && n.resolve(id) == nil {
			return fmt.Errorf("CDI device %s of claim %s is left", id, claim.Name)
		}
	}
	return n.nothingNames(claim)
}

// nothingNames checks that no file of the folder of CDI specs names a claim.
func (n *node) nothingNames(claim *resourceapi.ResourceClaim) error {
	names, err := n.specs()
	for _, name := range names {
		if strings.Contains(name, string(claim.UID)) {
			err = errors.Join(err, fmt.Errorf("%s is left of claim %s", filepath.Join(n.cdi, name), claim.Name))
		}
	}
	return err
}

// remove deletes the objects of a claim and its pod, as a forced deletion does.
func (n *node) remove(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	var errs []error
	for _, pod := range claim.Status.ReservedFor {
		errs = append(errs, n.client.CoreV1().Pods(claim.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	}
	client := n.client.ResourceV1().ResourceClaims(claim.Namespace)
	// Finalizers of the allocation would keep the object in a cluster.
	patch := []byte(`{"metadata": {"finalizers": null}}`)
	_, err := client.Patch(ctx, claim.Name, "application/merge-patch+json", patch, metav1.PatchOptions{})
	errs = append(errs, err, client.Delete(ctx, claim.Name, metav1.DeleteOptions{}))
	return errors.Join(slices.DeleteFunc(errs, apierrors.IsNotFound)...)
}

// clean unprepares and deletes the claims of a scenario, and checks that nothing is left.
func (n *node) clean(ctx context.Context) (err error) {
	if n.server != nil {
		n.server.setDown(false)
	}
	// A scenario may have left a driver that is dead, or that is cut off from the kubelet.
	if n.command != "" {
		if _, registerErr := n.plugins(ctx); registerErr != nil || n.emptied || !n.driver.running() {
			if err := n.restart(ctx, syscall.SIGKILL); err != nil {
				return err
			}
		}
	}
	for _, claim := range slices.Backward(n.claims) {
		err = errors.Join(err, until(ctx, n.waits.again, func() error { return n.unprepare(ctx, call(claim)) }),
			n.remove(ctx, claim), until(ctx, n.waits.again, func() error { return n.nothingNames(claim) }))
	}
	n.claims, n.emptied = nil, false
	return err
}
