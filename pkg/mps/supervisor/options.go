package supervisor

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// DefaultStartTimeout leaves time for a GPU without persistence mode, which
	// the driver initialises first. Claims of one GPU wait for each other, and
	// three such times fit into the 40 s that the agent tries for.
	DefaultStartTimeout = 12 * time.Second
	// MaxStartTimeout leaves time for the reason to reach the agent, which gives
	// up after 30 s.
	MaxStartTimeout = 25 * time.Second
	// DefaultProbeInterval keeps small what each question adds to the daemon's
	// log. A hang that stands in the way of a share is found sooner: see
	// [Options.AnswerAge].
	DefaultProbeInterval = 2 * time.Minute
	// DefaultLogLimit is in bytes.
	DefaultLogLimit = 16 << 20
	// DefaultShmSize is in bytes. It leaves each of several sharers more than the
	// 64 MiB of a container's own.
	DefaultShmSize = 1 << 30
)

// Options say how a [Supervisor] runs its daemons. What is left out has a
// default, except for the two folders.
type Options struct {
	// Driver is where nvidia-cuda-mps-control is.
	Driver gpu.DriverRoot
	// Environment that daemons get besides what they need, for simulated GPUs.
	Environment []string

	// RunDir holds a folder for each daemon, and is locked by its supervisor. On a
	// file system that is empty after a boot: what it holds is of running
	// processes.
	RunDir string
	// LogDir holds a folder for each daemon, kept until the next of that name or
	// until the supervisor leaves.
	LogDir string

	// MultiUser has one server, of root, serve clients of all users. Without it
	// a server has its client's user, and a client of another user waits until
	// the clients of the first have ended.
	MultiUser bool
	// HostShm leaves /dev/shm of the daemons as it is, so that clients must have
	// the host's: nothing is mounted, which takes no privilege. Every client sees
	// the shared memory of all others and of the host, and can fill RunDir.
	HostShm bool
	// ShmSize is how many bytes the /dev/shm of a daemon and all its clients can
	// hold: a tmpfs, which takes root, unless HostShm says that there is none. A
	// daemon keeps the size that it began with until it is stopped.
	ShmSize int64
	// PlainShm makes it, and the folder of the pipes, a plain folder in RunDir,
	// which clients can fill as far as that goes: for a supervisor in a container
	// whose mounts the host does not see.
	PlainShm bool
	// MountNamespace, such as /proc/1/ns/mnt, is where daemons see their files,
	// and where their clients' mounts come from: the host's.
	// A supervisor in a container needs it: a container's files go with the
	// container, and the daemons stay. Empty for the supervisor's own.
	MountNamespace string
	// Cgroup is a folder of cgroup v2 that daemons start in, made if missing, and
	// then removed when the supervisor leaves. A supervisor in a container needs
	// it, as all that is in the container's own is killed with it. Empty for the
	// supervisor's own.
	Cgroup string

	// StartTimeout is how long a daemon may take to answer first, which is
	// seconds where the driver has to initialise the GPU.
	StartTimeout time.Duration
	// CommandTimeout is how long it may take to answer one command.
	CommandTimeout time.Duration
	// StopGrace is how long it may take to end when asked.
	StopGrace time.Duration
	// ProbeInterval is how often a daemon is asked whether it is well.
	ProbeInterval time.Duration
	// AnswerAge is how old a daemon's last answer can be for a share that changes
	// nothing to be given without asking it. It keeps many shares at a time cheap.
	AnswerAge time.Duration
	// LogLimit is how many bytes of the disk each log file of a daemon may take;
	// one that takes more is cut to nothing at the next interval of the probes.
	LogLimit int64
	// Clock for intervals and back-off.
	Clock clock.WithTicker

	// openProcess is pidfd_open, replaced in tests.
	openProcess func(pid, flags int) (int, error)
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
	return o
}
