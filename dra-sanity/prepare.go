// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	metadataapi "k8s.io/dynamic-resource-allocation/api/metadata"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

func prepares(ctx context.Context, n *node) error {
	_, _, err := n.preparedClaim(ctx, "one")
	return err
}

// preparedClaim allocates the first usable device to a new claim, and prepares it.
func (n *node) preparedClaim(ctx context.Context, name string) (*resourceapi.ResourceClaim, []*drapb.Device, error) {
	devices, err := n.take(ctx, 1)
	if err != nil {
		return nil, nil, err
	}
	return n.prepared(ctx, name, devices)
}

// prepared allocates devices to a new claim, and prepares it.
func (n *node) prepared(ctx context.Context, name string, devices []poolDevice) (*resourceapi.ResourceClaim, []*drapb.Device, error) {
	claim, err := n.allocate(ctx, name, devices, "")
	if err != nil {
		return nil, nil, err
	}
	answer, err := n.ready(ctx, claim)
	return claim, answer, err
}

// two allocates a device each to two new claims.
func (n *node) two(ctx context.Context, name, other string) (*resourceapi.ResourceClaim, *resourceapi.ResourceClaim, error) {
	devices, err := n.take(ctx, 2)
	if err != nil {
		return nil, nil, err
	}
	a, err := n.allocate(ctx, name, devices[:1], "")
	if err != nil {
		return nil, nil, err
	}
	b, err := n.allocate(ctx, other, devices[1:], "")
	return a, b, err
}

func preparesTwo(ctx context.Context, n *node) error {
	devices, err := n.take(ctx, 2)
	if err != nil {
		return err
	}
	_, _, err = n.prepared(ctx, "two", devices)
	return err
}

// equal prepares a claim again, and compares the answer with an earlier one.
func (n *node) equal(ctx context.Context, claim *resourceapi.ResourceClaim, first []*drapb.Device) error {
	again, err := n.ready(ctx, claim)
	if err != nil {
		return err
	}
	if a, b := cdiIDs(first), cdiIDs(again); !slices.Equal(a, b) || len(first) != len(again) {
		return fmt.Errorf("the first answer has %d devices with %q, and the later one %d with %q", len(first), a, len(again), b)
	}
	return nil
}

func preparesTwice(ctx context.Context, n *node) error {
	claim, first, err := n.preparedClaim(ctx, "twice")
	if err != nil {
		return err
	}
	return n.equal(ctx, claim, first)
}

func preparesAtOnce(ctx context.Context, n *node) error {
	claim, err := n.one(ctx, "at-once")
	if err != nil {
		return err
	}
	const calls = 8
	answers := make([][]*drapb.Device, calls)
	errs := make([]error, calls)
	var wait sync.WaitGroup
	for i := range calls {
		wait.Go(func() { answers[i], errs[i] = n.ready(ctx, claim) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, answer := range answers {
		if err := n.equal(ctx, claim, answer); err != nil {
			return err
		}
	}
	return nil
}

func preparesBatch(ctx context.Context, n *node) error {
	first, last, err := n.two(ctx, "batch-first", "batch-last")
	if err != nil {
		return err
	}
	missing := &drapb.Claim{Namespace: namespace, Name: "batch-missing", Uid: string(uuid.NewUUID())}
	if err := n.refused(ctx, missing, "a claim that does not exist", call(first), call(last)); err != nil {
		return err
	}
	if err := until(ctx, n.waits.again, func() error {
		answers, err := n.prepare(ctx, call(first), call(last))
		if err != nil {
			return err
		}
		_, firstErr := n.checkAnswer(first, answers)
		_, lastErr := n.checkAnswer(last, answers)
		return errors.Join(firstErr, lastErr)
	}); err != nil {
		return err
	}
	// The kubelet unprepares all claims of a pod in one call, too.
	if err := n.unprepare(ctx, call(first), call(last)); err != nil {
		return err
	}
	return errors.Join(n.nothingNames(first), n.nothingNames(last))
}

// refused checks that prepare refuses a claim, alone or with the whole call. The kubelet treats both alike.
func (n *node) refused(ctx context.Context, claim *drapb.Claim, why string, others ...*drapb.Claim) error {
	answers, err := n.prepare(ctx, append(others, claim)...)
	if errors.Is(err, errRefused) {
		return nil
	}
	if err != nil {
		return err
	}
	if answers[claim.Uid].GetError() == "" {
		return fmt.Errorf("the answer has no error for %s", why)
	}
	return nil
}

func preparesMissing(ctx context.Context, n *node) error {
	return n.refused(ctx, &drapb.Claim{Namespace: namespace, Name: "missing", Uid: string(uuid.NewUUID())}, "a claim that does not exist")
}

func preparesUnallocated(ctx context.Context, n *node) error {
	claim, err := n.allocate(ctx, "unallocated", nil, "")
	if err != nil {
		return err
	}
	return n.refused(ctx, call(claim), "a claim without an allocation")
}

func preparesNewUID(ctx context.Context, n *node) error {
	devices, err := n.take(ctx, 2)
	if errors.Is(err, errSkipped) {
		devices, err = n.take(ctx, 1)
	}
	if err != nil {
		return err
	}
	old, _, err := n.prepared(ctx, "renewed", devices[:1])
	if err != nil {
		return err
	}
	if err := errors.Join(n.unprepare(ctx, call(old)), n.remove(ctx, old)); err != nil {
		return err
	}
	renewed, err := n.allocate(ctx, "renewed", devices[len(devices)-1:], "")
	if err != nil {
		return err
	}
	if err := n.refused(ctx, call(old), "a claim that was deleted"); err != nil {
		return err
	}
	_, err = n.ready(ctx, renewed)
	return err
}

func preparesBadConfig(ctx context.Context, n *node) error {
	devices, err := n.take(ctx, 1)
	if err != nil {
		return err
	}
	claim, err := n.allocate(ctx, "bad-config", devices, `{"apiVersion": "sanity.example/v1", "kind": "Nonsense", "spec": {"unknown": true}}`)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return nil // the driver's policy or webhook refuses them
	}
	if err != nil {
		return err
	}
	if err := n.refused(ctx, call(claim), "unknown parameters"); err != nil {
		return err
	}
	return n.nothingNames(claim)
}

func preparesOtherDriver(ctx context.Context, n *node) error {
	devices, err := n.take(ctx, 1)
	if err != nil {
		return err
	}
	other := poolDevice{"other.sanity.example", "other", resourceapi.Device{Name: "other"}}
	_, _, err = n.prepared(ctx, "other-driver", append(devices, other))
	return err
}

func preparesAPIAway(ctx context.Context, n *node) error {
	if n.server == nil {
		return errNoServer
	}
	claim, err := n.one(ctx, "api-away")
	if err != nil {
		return err
	}
	n.server.setDown(true)
	began := time.Now()
	_, err = n.prepare(ctx, call(claim))
	n.server.setDown(false)
	// Any error in time is an answer. A driver that has ended is found below.
	if err != nil && time.Since(began) >= n.waits.call {
		return err
	}
	_, err = n.ready(ctx, claim)
	return err
}

// second prepares a claim for a device, deletes the claim by force, and allocates the device to a second claim.
func (n *node) second(ctx context.Context) (first, second *resourceapi.ResourceClaim, err error) {
	devices, err := n.take(ctx, 1)
	if err != nil {
		return nil, nil, err
	}
	if shared(devices[0]) == 1 {
		return nil, nil, fmt.Errorf("%w: all devices are shared by claims", errSkipped)
	}
	if first, _, err = n.prepared(ctx, "first", devices); err != nil {
		return nil, nil, err
	}
	if err = n.remove(ctx, first); err != nil {
		return nil, nil, err
	}
	second, err = n.allocate(ctx, "second", devices, "")
	return first, second, err
}

func preparesHeld(ctx context.Context, n *node) error {
	_, second, err := n.second(ctx)
	if err != nil {
		return err
	}
	return n.refused(ctx, call(second), "a device that another claim still has")
}

func preparesAgain(ctx context.Context, n *node) error {
	first, second, err := n.second(ctx)
	if err != nil {
		return err
	}
	if err := n.unprepare(ctx, call(first)); err != nil {
		return err
	}
	_, err = n.ready(ctx, second)
	return err
}

func preparesBadNames(ctx context.Context, n *node) error {
	claim, first, err := n.preparedClaim(ctx, "bad-names")
	if err != nil {
		return err
	}
	// The first two names lead here from the driver's folder, and from one below it.
	other := filepath.Join(n.kubelet, "plugins", "sanity-escape")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		return err
	}
	defer os.Remove(other) //nolint:errcheck // the scenario fails if it is gone
	for _, bad := range []string{"../sanity-escape", "../../sanity-escape", "/sanity-escape", "a\nb", ""} {
		claim := &drapb.Claim{Namespace: namespace, Name: bad, Uid: bad}
		// Either is right, as long as the driver lives.
		_, prepareErr := n.prepare(ctx, claim)
		_ = errors.Join(prepareErr, n.unprepare(ctx, claim))
	}
	if _, err := os.Lstat(other); err != nil {
		return fmt.Errorf("a name of a claim has removed a file outside the driver's folder: %w", err)
	}
	for _, path := range []string{filepath.Join(n.kubelet, "sanity-escape"), filepath.Join(n.cdi, "../../sanity-escape"), "/sanity-escape"} {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s was created", path)
		}
	}
	return errors.Join(n.resolve(cdiIDs(first)...), n.equal(ctx, claim, first))
}

// metadataFiles checks the files that describe devices to their containers. A driver need not have them.
func metadataFiles(ctx context.Context, n *node) error {
	claim, devices, err := n.preparedClaim(ctx, "metadata")
	if err != nil {
		return err
	}
	cache, err := n.cache()
	if err != nil {
		return err
	}
	var paths []string
	for _, id := range cdiIDs(devices) {
		for _, mount := range cache.GetDevice(id).ContainerEdits.Mounts { // ready has resolved it
			if strings.HasPrefix(mount.ContainerPath, metadataapi.ContainerDir+"/") {
				paths = append(paths, mount.HostPath)
			}
		}
	}
	if len(paths) == 0 {
		return fmt.Errorf("%w: the driver has no metadata files", errSkipped)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		names := func(name string) bool { return bytes.Contains(text, []byte(strconv.Quote(name))) }
		if !names(string(claim.UID)) || !slices.ContainsFunc(devices, func(d *drapb.Device) bool { return names(d.DeviceName) }) {
			return fmt.Errorf("%s does not name the claim and one of its devices", path)
		}
	}
	err = n.unprepare(ctx, call(claim))
	for _, path := range paths {
		if _, statErr := os.Stat(path); !errors.Is(statErr, fs.ErrNotExist) {
			err = errors.Join(err, statErr, fmt.Errorf("%s is left", path))
		}
	}
	return err
}

func unprepares(ctx context.Context, n *node) error {
	if err := n.unprepared(ctx, "unprepare"); err != nil {
		return err
	}
	before, err := n.present()
	if err != nil {
		return err
	}
	return cmp.Or(n.unprepared(ctx, "unprepare-later"), n.nothingNew(before))
}

// unprepared prepares and unprepares a new claim.
func (n *node) unprepared(ctx context.Context, name string) error {
	claim, devices, err := n.preparedClaim(ctx, name)
	if err != nil {
		return err
	}
	if err := n.unprepare(ctx, call(claim)); err != nil {
		return err
	}
	return n.gone(claim, cdiIDs(devices))
}

func unpreparesTwice(ctx context.Context, n *node) error {
	if err := unprepares(ctx, n); err != nil {
		return err
	}
	return n.unprepare(ctx, call(n.claims[0]))
}

func unpreparesUnknown(ctx context.Context, n *node) error {
	return n.unprepare(ctx, &drapb.Claim{Namespace: namespace, Name: "unknown", Uid: string(uuid.NewUUID())})
}

func unpreparesDeleted(ctx context.Context, n *node) error {
	claim, first, err := n.preparedClaim(ctx, "deleted")
	if err != nil {
		return err
	}
	if err := errors.Join(n.remove(ctx, claim), n.unprepare(ctx, call(claim))); err != nil {
		return err
	}
	return n.gone(claim, cdiIDs(first))
}

func unpreparesOneOfTwo(ctx context.Context, n *node) error {
	first, other, err := n.two(ctx, "first-of-two", "other-of-two")
	if err != nil {
		return err
	}
	_, firstErr := n.ready(ctx, first)
	prepared, err := n.ready(ctx, other)
	if err := errors.Join(firstErr, err, n.unprepare(ctx, call(first))); err != nil {
		return err
	}
	return n.resolve(cdiIDs(prepared)...)
}

func manyClaims(ctx context.Context, n *node) error {
	before, err := n.driver.files()
	if err != nil {
		return err
	}
	var present []string
	for i := range n.many {
		claim, err := n.one(ctx, fmt.Sprintf("many-%d", i))
		if err != nil {
			return err
		}
		if _, err := n.ready(ctx, claim); err != nil {
			return fmt.Errorf("claim %d: %w", i, err)
		}
		if err := errors.Join(n.unprepare(ctx, call(claim)), n.nothingNames(claim), n.remove(ctx, claim)); err != nil {
			return fmt.Errorf("claim %d: %w", i, err)
		}
		n.claims = nil
		if i == 0 {
			if present, err = n.present(); err != nil {
				return err
			}
		}
	}
	if err := n.nothingNew(present); err != nil {
		return err
	}
	const spare = 10
	return until(ctx, n.waits.files, func() error {
		after, err := n.driver.files()
		if err == nil && after > before+spare {
			err = fmt.Errorf("the driver has %d open files after %d claims, and had %d", after, n.many, before)
		}
		return err
	})
}
