// SPDX-License-Identifier: Apache-2.0

package home

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/file"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/folder"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
)

const (
	// name is the name of the home in the driver's folder.
	name     = "agent"
	lockName = "lock"
	// MetadataDir is the name of upstream's folder of metadata files in the driver's folder.
	MetadataDir = "dra-device-metadata"
	// mode is the mode of the home and of the driver's folder. Only root reads them:
	// the agent, and the container runtime, which runs the hook.
	mode = 0o750
)

// Home is the agents' folder, held by this agent.
type Home struct {
	driverDir string
	dir       string
	held      *folder.Lock
	alone     func()

	Claims, MIGModes, MIGDevices, TimeSlices, ComputeModes, Faults *store.Store
	// NodeConfig stores the configuration that the node follows, and Events those about GPUs.
	NodeConfig, Events *store.Store
}

// records is a store in the home.
type records struct {
	dir   string
	store **store.Store
	fs    store.FS
	// keepsHome is set if the home stays while the store has a record.
	keepsHome bool
}

// records returns all stores.
//
// A MIG mode can outlive the boot of the machine, and the configuration of the node does. Claims,
// MIG devices, time slices, compute modes and faults do not. An event about a GPU that a reboot
// has repaired is not worth a sync.
func (h *Home) records() []records {
	return []records{
		{"claims", &h.Claims, store.Unsynced{}, true},
		{"mig-modes", &h.MIGModes, store.Disk{}, true},
		{"mig-devices", &h.MIGDevices, store.Unsynced{}, true},
		{"time-slices", &h.TimeSlices, store.Unsynced{}, true},
		{"compute-modes", &h.ComputeModes, store.Unsynced{}, true},
		{"faults", &h.Faults, store.Unsynced{}, true},
		{"node-config", &h.NodeConfig, store.Disk{}, false},
		{"events", &h.Events, store.Unsynced{}, false},
	}
}

// Enter holds the home in a driver's folder and creates it if it is missing. It waits
// while the last agent removes it. The first agent that enters and the last one that
// leaves call alone, and no other agent can enter during that call. It may remove
// files that killed agents have left in other places.
//
// Each function of disks wraps the disk of the records, and may make it fail.
func Enter(ctx context.Context, driverDir string, alone func(), disks ...func(store.FS) store.FS) (*Home, error) {
	h := &Home{driverDir: driverDir, dir: filepath.Join(driverDir, name), alone: alone}
	own, first, err := folder.Own(h.dir, mode)
	if err != nil {
		return nil, fmt.Errorf("enter the agent's folder: %w", err)
	}
	if first {
		alone()
		if err := own.Close(); err != nil {
			return nil, fmt.Errorf("enter the agent's folder: %w", err)
		}
	}
	if h.held, err = folder.Share(ctx, h.dir, mode); err != nil {
		return nil, fmt.Errorf("enter the agent's folder: %w", err)
	}
	for _, r := range h.records() {
		disk := r.fs
		for _, wrap := range disks {
			disk = wrap(disk)
		}
		if *r.store, err = store.Open(filepath.Join(h.dir, r.dir), disk); err != nil {
			return nil, errors.Join(fmt.Errorf("enter the agent's folder: %w", err), h.Close())
		}
	}
	return h, nil
}

// LockFile returns the path of the file with package claim's locks.
func (h *Home) LockFile() string { return filepath.Join(h.dir, lockName) }

// Check returns an error if the home was removed or replaced since Enter. The same
// holds for a folder of records in it. The agent must then restart: without the
// records it does not know the prepared claims, and a new agent reads them from the
// CDI specs.
func (h *Home) Check() error {
	if err := h.held.Check(); err != nil {
		return fmt.Errorf("the agent's folder was replaced, restart the agent: %w", err)
	}
	for _, r := range h.records() {
		if _, err := os.Stat(filepath.Join(h.dir, r.dir)); err != nil {
			return fmt.Errorf("records are gone, restart the agent: %w", err)
		}
	}
	return nil
}

// Close releases the home and does not remove it.
func (h *Home) Close() error { return h.held.Close() }

// Leave releases the home. It also removes the home if this is the last agent, there
// are no records except those of the node's configuration and of events, and needed returns false. needed
// reports whether the next agent needs the home, such as for a claim without a record; no
// other agent can enter during the call. This agent must not
// write into the home or the driver's folder any more.
//
// After an error the home may be removed in part.
func (h *Home) Leave(needed func() (bool, error)) (err error) {
	defer func() {
		if err = errors.Join(err, h.Close()); err != nil {
			err = fmt.Errorf("leave the agent's folder: %w", err)
		}
	}()
	if last, err := h.held.Own(); err != nil || !last {
		return err
	}
	h.alone()
	for _, r := range h.records() {
		if !r.keepsHome {
			continue
		}
		if empty, err := (*r.store).Empty(); err != nil || !empty {
			return err
		}
	}
	if needed, err := needed(); err != nil || needed {
		return err
	}
	return h.remove()
}

// remove removes the files and folders of the agents and no others. The home and then
// the driver's folder are last; an agent that enters creates both.
func (h *Home) remove() error {
	var errs []error
	for _, r := range h.records() {
		if !r.keepsHome {
			errs = append(errs, deleteAll(*r.store))
		}
		errs = append(errs, (*r.store).Remove())
	}
	entries, err := os.ReadDir(h.dir)
	errs = append(errs, err)
	for _, e := range entries {
		if e.Name() == lockName || e.Name() == HookName || strings.HasPrefix(e.Name(), hookTemporary) || strings.HasPrefix(e.Name(), hookSocketName) {
			errs = append(errs, removeFile(filepath.Join(h.dir, e.Name())))
		}
	}
	errs = append(errs, h.removeMemoryHook(), h.removeCallLocks())
	for _, dir := range []string{filepath.Join(h.driverDir, MetadataDir), h.Limits(), h.dir, h.driverDir} {
		errs = append(errs, folder.Remove(dir))
	}
	return errors.Join(errs...)
}

// deleteAll deletes all records of a store.
func deleteAll(records *store.Store) error {
	keys, err := records.Keys()
	errs := []error{err}
	for _, key := range keys {
		errs = append(errs, records.Delete(key))
	}
	return errors.Join(errs...)
}

// removeFile removes a file. It succeeds and does nothing if the path is a folder.
func removeFile(path string) error {
	if err := file.Remove(path); !errors.Is(err, unix.EISDIR) {
		return err
	}
	return nil
}
