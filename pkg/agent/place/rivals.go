// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// rivalsTime is the interval at which the kubelet's registry is read for other drivers.
const rivalsTime = 10 * time.Second

// Rivals finds other drivers that register with the kubelet under the name of this one.
// The kubelet calls only the one that registered last, and both replace each other's
// ResourceSlices.
type Rivals struct {
	Place
	own      Sockets
	observer Observer
	clock    clock.WithTicker

	// known are the answers of sockets. Only one goroutine reads them.
	known map[socketID]bool

	mu    sync.Mutex
	found []string
}

// socketID identifies a socket: a new socket at the same path has another time.
type socketID struct {
	path string
	made time.Time
}

// Observer replaces the number of other drivers.
type Observer interface{ OtherDrivers(drivers int) }

// NewRivals returns the rivals of a plugin, of which none is known yet.
func NewRivals(p Place, observer Observer, c clock.WithTicker) *Rivals {
	return &Rivals{Place: p, own: p.Sockets(), observer: observer, clock: c, known: map[socketID]bool{}}
}

// Err returns an error that wraps [gpu.ErrInUse] and says what to do if another driver was
// found.
func (r *Rivals) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found) == 0 {
		return nil
	}
	return fmt.Errorf("%w: another driver serves the kubelet under the name %s (%s); remove one of the two from the node", gpu.ErrInUse, r.DriverName, strings.Join(r.found, ", "))
}

// Wait waits until no other driver is registered, or ctx ends.
func (r *Rivals) Wait(ctx context.Context) {
	ticker := r.clock.NewTicker(rivalsTime)
	defer ticker.Stop()
	for r.read(ctx); r.Err() != nil; r.read(ctx) {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}

// Run finds other drivers until ctx ends.
func (r *Rivals) Run(ctx context.Context) {
	ticker := r.clock.NewTicker(rivalsTime)
	defer ticker.Stop()
	for {
		r.read(ctx)
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}

// read reads the kubelet's registry, and logs a change.
func (r *Rivals) read(ctx context.Context) {
	found, err := r.list(ctx)
	if ctx.Err() != nil {
		return
	}
	logger := klog.FromContext(ctx)
	if err != nil {
		logger.V(2).Info("Cannot read every registration with the kubelet", "err", err)
	}
	r.observer.OtherDrivers(len(found))
	r.mu.Lock()
	before := r.found
	r.found = found
	r.mu.Unlock()
	switch {
	case slices.Equal(before, found):
	case len(found) == 0:
		logger.Info("No other driver is registered under this name any more", "driver", r.DriverName)
	default:
		logger.Error(r.Err(), "Another driver is registered under this name", "driver", r.DriverName, "sockets", found)
	}
}

// list returns the registration sockets of other drivers, sorted. A socket that does not
// answer is not one of them: the kubelet cannot register it either.
func (r *Rivals) list(ctx context.Context) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(r.RegistryDir, "*.sock"))
	errs := []error{err}
	found, known := []string{}, map[socketID]bool{}
	for _, path := range paths {
		if path == r.own.registrar {
			continue
		}
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() != os.ModeSocket {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		id := socketID{path, info.ModTime()}
		rival, answered := r.known[id]
		if !answered || rival {
			if rival, err = r.isRival(ctx, path); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		known[id] = rival
		if rival {
			found = append(found, path)
		}
	}
	r.known = known
	return found, errors.Join(errs...)
}

// isOwn reports whether an agent of this driver has the service socket. The agents of
// pods have a part of the pod's UID in its name, see [Instance]; NVIDIA's own driver has
// the whole UID.
func (r *Rivals) isOwn(service string) bool {
	own, err := filepath.Match(filepath.Join(r.DataDir, "dra-"+podPattern()+".sock"), service)
	return err == nil && own || service == r.own.service
}

// isRival reports whether a driver of this name answers on a registration socket.
// It returns false for an agent of this driver.
func (r *Rivals) isRival(ctx context.Context, socket string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, socketPatience)
	defer cancel()
	var info *registerapi.PluginInfo
	err := callSocket(ctx, r.Network, socket, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		info, err = registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{})
		return err
	})
	if err != nil {
		return false, err
	}
	return info.GetType() == registerapi.DRAPlugin && info.GetName() == r.DriverName && !r.isOwn(info.GetEndpoint()), nil
}
