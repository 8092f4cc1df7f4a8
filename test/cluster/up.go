// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/build"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/process"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// Options of [Up].
type Options struct {
	// Source is the directory test/cluster of a clone; "" takes the existing binaries.
	Source string
	// Release of Kubernetes.
	Release build.Release
	// ContainerRuntime is the kubelet's: containerd or cri-o.
	ContainerRuntime string
	// Nodes is the number of nodes that the cluster has at least, 9 at most.
	Nodes int
	// Say reports progress, a line at a time.
	Say func(format string, args ...any)
}

// Up brings the cluster up and returns when a pod can be created in it. A
// healthy cluster is left alone; a broken one is taken down first. Where Up
// fails, everything is taken down again but the logs. With the layout of a further node it brings up that node.
func Up(ctx context.Context, l Layout, o Options) (Info, error) {
	unlock, err := lockMachine(ctx, o.Say)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	info, err := upNode(ctx, l, o)
	for n := 2; n <= o.Nodes && l.isFirst() && err == nil; n++ {
		_, err = upNode(ctx, l.node(n), o)
	}
	return info, err
}

// upNode needs the lock of the machine.
func upNode(ctx context.Context, l Layout, o Options) (Info, error) {
	info, err := ReadInfo(l)
	if err == nil {
		err = healthy(ctx, l, info, time.Time{})
		if err == nil && info.KubernetesVersion != o.Release.Version {
			return Info{}, fmt.Errorf("cluster %s is up with Kubernetes %s: take it down first", l.Name, info.KubernetesVersion)
		}
		if err == nil && info.ContainerRuntime != o.ContainerRuntime {
			return Info{}, fmt.Errorf("cluster %s is up with the container runtime %s: take it down first", l.Name, info.ContainerRuntime)
		}
		if err == nil {
			o.Say("cluster %s is up already", l.Name)
			return info, nil
		}
	}
	if _, statErr := os.Stat(l.State); statErr == nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("an earlier run did not finish")
		}
		reason, _, _ := strings.Cut(err.Error(), "; the end of ")
		o.Say("cluster %s is broken and is made anew: %s", l.Name, reason)
	}
	if err := takeDown(ctx, l, o.Say); err != nil {
		return Info{}, err
	}
	if err := refuseForeignKubelet(); err != nil {
		return Info{}, err
	}
	if err := prepareMachine(ctx, l, o); err != nil {
		return Info{}, err
	}
	info, err = bringUp(ctx, l, o)
	if err != nil {
		// Also after an interruption.
		ctx := context.WithoutCancel(ctx)
		return Info{}, errors.Join(fmt.Errorf("cluster %s did not come up: %w\nall logs: %s", l.Name, err, l.LogsDir()), release(ctx, l))
	}
	return info, nil
}

// refuseForeignKubelet protects a real node: logs and CNI results of all pods of a machine are at
// the same paths.
func refuseForeignKubelet() error {
	if !host.KubeletRuns() {
		return nil
	}
	return fmt.Errorf("a kubelet runs on this machine already, and pods of both would share %s and %s: use another machine", containerLogs, cniResults)
}

// prepareMachine installs missing packages and builds missing binaries.
func prepareMachine(ctx context.Context, l Layout, o Options) error {
	var others []string
	if o.ContainerRuntime == build.CRIO {
		others = crioPrograms()
	}
	if missing := host.MissingPackages(others...); len(missing) > 0 {
		o.Say("installing Debian packages: %s", strings.Join(missing, " "))
		if err := host.InstallPackages(ctx, missing); err != nil {
			return err
		}
	}
	stale, err := build.Stale(o.Source, l.Bin, build.Targets(o.Release, o.ContainerRuntime))
	if err != nil {
		return err
	}
	return build.Run(ctx, o.Source, l.Bin, stale, o.Say)
}

// bringUp starts everything on a machine that holds nothing of the cluster.
func bringUp(ctx context.Context, l Layout, o Options) (Info, error) {
	began := time.Now().Truncate(time.Second) // as the API server has times
	programs, err := findPrograms(o)
	if err != nil {
		return Info{}, err
	}
	n, err := newNetwork(l)
	if err != nil {
		return Info{}, err
	}
	if err := os.MkdirAll(l.State, 0o755); err != nil {
		return Info{}, err
	}
	if err := host.ShareMount(l.State); err != nil {
		return Info{}, err
	}
	for _, dir := range []string{l.LogsDir(), l.processesDir(), l.CDIDir(), l.KubeletRoot(), l.DevicePluginsDir(), l.socketsDir(), l.path("s")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return Info{}, err
		}
	}
	files, err := newCredentials(l, n, time.Now())
	if err != nil {
		return Info{}, err
	}
	config, err := renderConfig(l, n, o, programs)
	if err != nil {
		return Info{}, err
	}
	if err := errors.Join(writeFiles(files), writeFiles(config)); err != nil {
		return Info{}, err
	}
	if err := l.link(n).Create(ctx); err != nil {
		return Info{}, err
	}
	if err := host.SaveSysctls(sysctlsFile()); err != nil {
		return Info{}, err
	}
	cgroups, err := host.FindCgroups()
	if err != nil {
		return Info{}, err
	}
	daemons, err := cgroups.Create(l.Cgroup())
	if err != nil {
		return Info{}, err
	}
	start := func(components ...string) error {
		components = slices.DeleteFunc(components, func(c string) bool { return !slices.Contains(l.components(), c) })
		o.Say("starting %s", strings.Join(components, ", "))
		for _, c := range components {
			spec := daemon(c, arguments(c, l, n, o.Release.Serve, o.Release.FeatureGates), l, programs, daemons)
			if _, err := process.Start(l.processesDir(), spec); err != nil {
				return err
			}
		}
		return nil
	}

	containerRuntime := l.containerRuntime()
	if err := start(etcd, containerRuntime, kubeAPIServer); err != nil {
		return Info{}, err
	}
	if err := loadImages(ctx, l); err != nil {
		return Info{}, err
	}
	client, err := newClient(l)
	if err != nil {
		return Info{}, err
	}
	first := l.first()
	if err := await(ctx, first, 90*time.Second, kubeAPIServer, []string{etcd, containerRuntime, kubeAPIServer}, func(ctx context.Context) error {
		return apiserverReady(ctx, client)
	}); err != nil {
		return Info{}, err
	}
	if err := start(kubeControllerManager, kubeScheduler, kubeProxy, kubelet); err != nil {
		return Info{}, err
	}
	if err := awaitNode(ctx, l, client, began); err != nil {
		return Info{}, err
	}
	info := l.info(n, o)
	if err := info.write(l.InfoFile()); err != nil {
		return Info{}, fmt.Errorf("describe the cluster: %w", err)
	}
	o.Say("node %s is Ready", l.NodeName())
	return info, nil
}

func loadImages(ctx context.Context, l Layout) error {
	archives, err := buildImages(ctx, l, filepath.Join(l.State, "images"))
	if err != nil {
		return err
	}
	containerRuntime := l.containerRuntime()
	if err := await(ctx, l, 30*time.Second, containerRuntime, []string{containerRuntime}, func(ctx context.Context) error {
		if containerRuntime == crio {
			return answers(ctx, l.crioSocket())
		}
		_, err := l.ctr(ctx, "version")
		return err
	}); err != nil {
		return err
	}
	for _, archive := range archives {
		if err := LoadImage(ctx, l, archive); err != nil {
			return err
		}
	}
	return nil
}

// awaitNode ignores what a node of that name has reported before.
func awaitNode(ctx context.Context, l Layout, client kubernetes.Interface, began time.Time) error {
	if err := await(ctx, l, 60*time.Second, kubelet, l.components(), func(ctx context.Context) error {
		return nodeReady(ctx, client, l.NodeName(), began)
	}); err != nil {
		return err
	}
	return await(ctx, l.first(), 30*time.Second, kubeControllerManager, l.first().components(), func(ctx context.Context) error {
		return serviceAccountExists(ctx, client)
	})
}

// await waits for a condition while the daemons that it needs run. Its error
// holds what the condition said last, before the wait ended, and the end of the log of the daemon
// that is to blame.
func await(ctx context.Context, l Layout, limit time.Duration, blame string, needs []string, condition func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		if err := running(l, needs...); err != nil {
			return false, err
		}
		err := condition(ctx)
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		return err == nil, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("waited %s: %w; the end of %s:\n%s", limit, last, l.logFile(blame), process.Tail(l.logFile(blame), 15))
	}
	return err
}

// sysctlsFile keeps the machine's own kernel settings while any cluster is up.
func sysctlsFile() string { return filepath.Join(StateRoot, "sysctls.json") }
