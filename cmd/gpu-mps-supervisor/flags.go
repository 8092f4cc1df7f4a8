// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/environment"
	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/program"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/supervisor"
)

// twins is the prefix of the flags' environment variables.
const twins = environment.Prefix("GPU_MPS_")

const (
	mebibyte = 1 << 20
	// smallestShm is enough for MPS itself and a few small clients.
	smallestShm = 16 * mebibyte
)

// options holds the values of all flags.
type options struct {
	driverRoot string

	socket         string
	runDir, logDir string
	mountNamespace string
	cgroup         string
	hostShm        bool
	shmSize        resource.QuantityValue

	multiUser     bool
	startTimeout  time.Duration
	probeInterval time.Duration

	logging *logsapi.LoggingConfiguration
}

// flags declares every flag, in the groups that --help shows.
func (o *options) flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets

	fs := sets.FlagSet("hardware")
	fs.StringVar(&o.driverRoot, "driver-root", "/", "`DIR` under which the NVIDIA driver is installed: / on a host, /run/nvidia/driver with NVIDIA's driver container")

	fs = sets.FlagSet("daemons")
	fs.BoolVar(&o.multiUser, "multi-user", true, "run one server, as root, for the clients of all users. Without it all clients of one GPU must belong to one user at a time: clients of another user (runAsUser) wait in their first CUDA call until the first user's have ended. Daemons with namespaces (MPS protocol 3) have one in any case")
	fs.DurationVar(&o.startTimeout, "start-timeout", supervisor.DefaultStartTimeout, "time in which a daemon must answer after its start, at most 25s: gpu-kubelet-plugin waits for 30s")
	fs.DurationVar(&o.probeInterval, "probe-interval", supervisor.DefaultProbeInterval, "time between health checks of a daemon")

	fs = sets.FlagSet("host")
	fs.StringVar(&o.socket, "socket", "", "`FILE` of the unix socket for gpu-kubelet-plugin (default: supervisor.sock in the run directory)")
	fs.StringVar(&o.runDir, "run-dir", filepath.Dir(mpsv1.DefaultSocket), "`DIR` for the daemons' sockets and shared memory: at the same path on the host, in folders that all users can traverse, empty after a boot, and at most 31 characters long, because the path of a socket is limited")
	fs.StringVar(&o.logDir, "log-dir", "/var/log/gpu-mps-supervisor", "`DIR` for the daemons' logs, which the supervisor removes if it ends without daemons")
	fs.StringVar(&o.mountNamespace, "mount-namespace", "", "`FILE` of the mount namespace of the daemons, such as /proc/1/ns/mnt: for a supervisor in a container, whose own files are lost with it (default: the supervisor's own)")
	fs.StringVar(&o.cgroup, "cgroup", "", "`DIR` of cgroup v2 for the daemons, such as /sys/fs/cgroup/gpu-mps, created if it is missing: for a supervisor in a container, because processes in the container's cgroup end with it (default: the supervisor's own)")
	fs.BoolVar(&o.hostShm, "host-shm", false, "use the host's /dev/shm for the daemons and for all containers with a share, and mount nothing on the folder of the sockets, so that containers can fill the file system of --run-dir: for a supervisor without CAP_SYS_ADMIN")
	o.shmSize.Quantity = *resource.NewQuantity(supervisor.DefaultShmSize, resource.BinarySI)
	fs.Var(&o.shmSize, "shm-size", "`SIZE` of the /dev/shm that a daemon and all containers with a share of its GPU use together. It replaces the 64Mi that each container would have, so it must be enough for all of them; its content counts as memory of the container that wrote it. Whole Mi, at least 16Mi, or 0 for plain folders in --run-dir, also for the daemon's sockets, so that containers can fill the file system of --run-dir: for a supervisor in a container without --mount-namespace, whose mounts the host does not see. Ignored with --host-shm")

	o.logging = program.LoggingFlags(&sets)
	return sets
}

// complete fills derived values and returns an error if the flags contradict each other.
func (o *options) complete() error {
	o.socket = cmp.Or(o.socket, filepath.Join(o.runDir, filepath.Base(mpsv1.DefaultSocket)))
	if err := program.MakeAbsolute(&o.driverRoot, &o.socket, &o.runDir, &o.logDir, &o.cgroup); err != nil {
		return err
	}
	switch {
	case o.startTimeout < time.Second:
		return program.Invalid("start-timeout", o.startTimeout, "want at least 1s")
	case o.startTimeout > supervisor.MaxStartTimeout:
		return program.Invalid("start-timeout", o.startTimeout, fmt.Sprintf("want at most %s: gpu-kubelet-plugin waits for 30s, and would not learn why a daemon does not start", supervisor.MaxStartTimeout))
	case o.probeInterval < time.Second:
		return program.Invalid("probe-interval", o.probeInterval, "want at least 1s")
	case !o.shmSize.IsZero() && o.shmSize.Value() < smallestShm || o.shmSize.Value()%mebibyte != 0:
		return program.Invalid("shm-size", &o.shmSize, "want whole Mi, at least 16Mi, or 0")
	}
	return nil
}

// supervised returns the configuration of the supervisor. It returns an error if the
// servers cannot reach the run directory.
func (o *options) supervised() (supervisor.Options, error) {
	supervised := supervisor.Options{
		Driver:         gpu.DriverRoot(o.driverRoot),
		RunDir:         o.runDir,
		LogDir:         o.logDir,
		MultiUser:      o.multiUser,
		HostShm:        o.hostShm,
		ShmSize:        o.shmSize.Value(),
		PlainShm:       o.shmSize.IsZero(),
		MountNamespace: o.mountNamespace,
		Cgroup:         o.cgroup,
		StartTimeout:   o.startTimeout,
		ProbeInterval:  o.probeInterval,
	}
	// Servers with --multi-user have the daemon's user.
	if !o.multiUser {
		if err := supervised.CheckRunDir(); err != nil {
			return supervised, fmt.Errorf("--run-dir=%s: %w", o.runDir, err)
		}
	}
	return supervised, nil
}
