// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/process"
)

const (
	// stopGrace is how long a daemon may take to end before it is killed.
	stopGrace = 10 * time.Second
	// guestGrace is the kubelet's default grace period for a pod.
	guestGrace = 30 * time.Second
	// cniResults is the directory in which libcni keeps the results for each pod.
	// The container runtimes have no setting for it.
	cniResults = "/var/lib/cni/results"
	// containerLogs is where a kubelet links to its pods' logs, for log
	// collectors; its place is not configurable.
	containerLogs = "/var/log/containers"
)

// Down takes the cluster down and removes all its files. It succeeds if there is no
// cluster.
func Down(ctx context.Context, l Layout, say func(format string, args ...any)) error {
	unlock, err := lockMachine(ctx, say)
	if err != nil {
		return err
	}
	defer unlock()
	if err := takeDown(ctx, l, say); err != nil {
		return err
	}
	say("cluster %s is down", l.Name)
	return nil
}

// takeDown needs the lock of the machine.
func takeDown(ctx context.Context, l Layout, say func(format string, args ...any)) error {
	for _, node := range l.further() {
		if err := takeDown(ctx, node, say); err != nil {
			return err
		}
	}
	unlock, err := lockDaemons(ctx, l, say)
	if err == nil {
		defer unlock()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	records, err := process.List(l.processesDir())
	if err != nil {
		return fmt.Errorf("take cluster %s down: %w", l.Name, err)
	}
	if len(records) > 0 {
		say("stopping pods and daemons of cluster %s", l.Name)
	}
	if err := release(ctx, l); err != nil {
		return fmt.Errorf("take cluster %s down: %w", l.Name, err)
	}
	if err := os.RemoveAll(l.State); err != nil {
		return fmt.Errorf("take cluster %s down: %w", l.Name, err)
	}
	return nil
}

// release ends all processes of the cluster and removes its changes to the machine. It
// keeps only the logs in the state directory. It continues after an error, to leave as
// little as possible.
func release(ctx context.Context, l Layout) error {
	cgroups, err := host.FindCgroups()
	if err != nil {
		return err
	}
	// First the components that would restart containers, then the containers through
	// their runtime, then the rest.
	errs := []error{
		stopGuests(ctx, l),
		stop(ctx, l, kubelet, kubeControllerManager, kubeScheduler, kubeProxy, kubeAPIServer),
	}
	killTasks(ctx, l)
	errs = append(errs,
		stop(ctx, l, containerd, crio, etcd),
		// This kills CRI-O's containers, and the shims and containers whose containerd had died.
		cgroups.Kill(ctx, l.Cgroup()),
		// The namespace ends with its mount, and takes the pair along some time later.
		l.link(network{}).Delete(ctx),
		host.UnmountBelow(l.State),
		cgroups.Remove(ctx, l.Cgroup()),
		removeCNIResults(l),
		removeLogLinks(l),
		restoreMachine(),
	)
	entries, err := os.ReadDir(l.State)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, entry := range entries {
		if path := l.path(entry.Name()); path != l.LogsDir() {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// stop ends daemons side by side.
func stop(ctx context.Context, l Layout, components ...string) error {
	errs := make([]error, len(components))
	var wg sync.WaitGroup
	for i, name := range components {
		wg.Go(func() {
			record, err := process.Read(l.processesDir(), name)
			if errors.Is(err, fs.ErrNotExist) {
				return
			}
			if err == nil {
				err = record.Stop(ctx, stopGrace)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// killTasks ends all containers through containerd, which then ends their shims. It
// ignores errors, because the members of the cgroup are killed later.
func killTasks(ctx context.Context, l Layout) {
	record, err := process.Read(l.processesDir(), containerd)
	if err != nil || !record.Alive() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := l.ctr(ctx, "tasks", "list", "--quiet")
	if err != nil || strings.TrimSpace(out) == "" {
		return
	}
	_, _ = l.ctr(ctx, append([]string{"tasks", "delete", "--force"}, strings.Fields(out)...)...)
}

func removeCNIResults(l Layout) error {
	files, err := filepath.Glob(filepath.Join(cniResults, l.cniNetwork()+"-*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	host.RemoveIfEmpty(cniResults, filepath.Dir(cniResults))
	return nil
}

// removeLogLinks removes the links of this cluster's pods and no others.
func removeLogLinks(l Layout) error {
	links, err := filepath.Glob(filepath.Join(containerLogs, "*.log"))
	if err != nil {
		return err
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err == nil && strings.HasPrefix(target, l.LogsDir()+"/") {
			if err := os.Remove(link); err != nil {
				return err
			}
		}
	}
	host.RemoveIfEmpty(containerLogs)
	return nil
}

// restoreMachine undoes what kubelets do at fixed places, when the last
// cluster goes.
func restoreMachine() error {
	others, err := host.InterfacesWithPrefix(vethPrefix)
	if err != nil || len(others) > 0 {
		return err
	}
	// Folders of nodes were mounted here.
	host.RemoveIfEmpty(host.DevicePluginDir, filepath.Dir(host.DevicePluginDir))
	host.RemoveIfEmpty(socketsDir)
	return host.RestoreSysctls(sysctlsFile())
}
