// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// DefaultStartTimeout is enough for a GPU without persistence mode, which the
	// driver initialises first. Claims of one GPU wait for each other, and three such
	// times fit into the 40 s for which the agent tries.
	DefaultStartTimeout = 12 * time.Second
	// MaxStartTimeout leaves time to return the reason to the agent, which gives up
	// after 30 s.
	MaxStartTimeout = 25 * time.Second
	// DefaultProbeInterval is long because each probe adds to the daemon's log. A
	// hang that delays a share is detected sooner: see [Options.AnswerAge].
	DefaultProbeInterval = 2 * time.Minute
	// DefaultLogLimit is in bytes.
	DefaultLogLimit = 16 << 20
	// DefaultShmSize is in bytes. Several containers share it, and each has more than
	// the 64 MiB of a container's own.
	DefaultShmSize = 1 << 30
)

// Options configure how a [Supervisor] runs its daemons. Every field but the two folders
// has a default.
type Options struct {
	// Driver is the root of the driver that has nvidia-cuda-mps-control.
	Driver gpu.DriverRoot
	// Environment holds further variables of the daemons, for simulated GPUs.
	Environment []string

	// RunDir holds a folder for each daemon, and is locked by its supervisor. It is on
	// a file system that is empty after a boot, because its files belong to running
	// processes.
	RunDir string
	// LogDir contains a folder for each daemon. The folder remains until the next
	// daemon of the name starts or the supervisor leaves.
	LogDir string

	// MultiUser lets one server, which runs as root, serve clients of all users. Without
	// it, a server runs as the user of its client, and a client of another user waits
	// until the clients of the first user have ended.
	MultiUser bool
	// HostShm leaves /dev/shm of the daemons unchanged, so that clients need the one
	// of the host. The supervisor mounts nothing and needs no privilege. Every client
	// can read the shared memory of all others and of the host, and fill RunDir.
	HostShm bool
	// ShmSize is the size in bytes of the /dev/shm that a daemon shares with all its
	// clients: a tmpfs, which needs root, and unused with HostShm. A daemon keeps its
	// size until it is stopped.
	ShmSize int64
	// PlainShm makes it, and the folder of the pipes, a plain folder in RunDir, which
	// clients can fill: for a supervisor in a container whose mounts do not reach the
	// host.
	PlainShm bool
	// MountNamespace, such as /proc/1/ns/mnt, is the mount namespace of the daemons and
	// of their clients' mounts: the one of the host. A supervisor in a container needs
	// it, because the daemons outlive the container and its files. Empty for the
	// supervisor's own.
	MountNamespace string
	// Cgroup is a folder of cgroup v2 for the daemons. The supervisor creates it if it
	// is missing, and then removes it when it leaves. A supervisor in a container needs
	// it, because the processes of a container's cgroup are killed with the container.
	// Empty for the supervisor's own.
	Cgroup string

	// StartTimeout limits the time until a daemon answers: seconds if the driver has to
	// initialise the GPU.
	StartTimeout time.Duration
	// CommandTimeout limits the time for the answer to a command.
	CommandTimeout time.Duration
	// StopGrace limits the time in which a daemon ends on command.
	StopGrace time.Duration
	// ProbeInterval is the interval between probes of a daemon.
	ProbeInterval time.Duration
	// AnswerAge is the time for which an answer of the daemon stays valid. Within it,
	// calls that change nothing do not query the daemon again. It keeps many shares at
	// a time cheap.
	AnswerAge time.Duration
	// LogLimit is the limit for each log file of a daemon in bytes on the disk. A file
	// that exceeds it is emptied at the next interval of the probes.
	LogLimit int64
	// Clock is used for intervals and back-off.
	Clock clock.WithTicker

	// openProcess is pidfd_open, replaced in tests.
	openProcess func(pid, flags int) (int, error)
	// kernel is replaced in tests.
	kernel kernel

	support *support
}

func (o Options) withDefaults() Options {
	o.Driver = cmp.Or(o.Driver, "/")
	o.ShmSize = cmp.Or(o.ShmSize, DefaultShmSize)
	o.StartTimeout = cmp.Or(o.StartTimeout, DefaultStartTimeout)
	o.CommandTimeout = cmp.Or(o.CommandTimeout, 5*time.Second)
	o.StopGrace = cmp.Or(o.StopGrace, 2*time.Second)
	o.ProbeInterval = cmp.Or(o.ProbeInterval, DefaultProbeInterval)
	o.LogLimit = cmp.Or(o.LogLimit, DefaultLogLimit)
	o.AnswerAge = cmp.Or(o.AnswerAge, 10*time.Second)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.openProcess == nil {
		o.openProcess = unix.PidfdOpen
	}
	if o.kernel.mount == nil {
		o.kernel = ownKernel()
	}
	o.support = &support{reading: make(chan struct{}, 1)}
	return o
}
