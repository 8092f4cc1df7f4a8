// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/build"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/process"
)

// The daemons of a cluster. Their binaries, records and logs have the same names.
const (
	etcd                  = "etcd"
	containerd            = "containerd"
	crio                  = "crio"
	kubeAPIServer         = "kube-apiserver"
	kubeControllerManager = "kube-controller-manager"
	kubeScheduler         = "kube-scheduler"
	kubeProxy             = "kube-proxy"
	kubelet               = "kubelet"
)

// frontProxyUser is who the API server is to aggregated API servers.
const frontProxyUser = "front-proxy-client"

// Components lists the daemons of a cluster with containerd in the order in which they are
// started.
func Components() []string { return componentsWith(containerd) }

func componentsWith(containerRuntime string) []string {
	return []string{etcd, containerRuntime, kubeAPIServer, kubeControllerManager, kubeScheduler, kubeProxy, kubelet}
}

// controlPlane lists the daemons that only the first node of a cluster has.
func controlPlane() []string {
	return []string{etcd, kubeAPIServer, kubeControllerManager, kubeScheduler}
}

// components lists the daemons of this node.
func (l Layout) components() []string {
	return slices.DeleteFunc(componentsWith(l.containerRuntime()), func(name string) bool {
		return !l.isFirst() && slices.Contains(controlPlane(), name)
	})
}

// isComponent reports whether a daemon of any cluster has the name.
func isComponent(name string) bool { return name == crio || slices.Contains(Components(), name) }

// arguments returns the command line of a daemon without its name. The API server serves
// the versions in addition to its own.
func arguments(component string, l Layout, n network, versions []string, featureGates map[string]bool) []string {
	kubeconfig := l.kubeconfigOf(component)
	var args []string
	switch component {
	case etcd:
		return []string{
			"--data-dir=" + l.path("etcd"),
			"--listen-client-urls=http://127.0.0.1:2379",
			"--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380",
			// The data end with the cluster.
			"--unsafe-no-fsync",
			"--log-level=warn",
		}
	case containerd:
		return []string{"--config=" + l.containerdConfig()}
	case crio:
		// The folder does not exist. The default is the machine's own.
		return []string{"--config=" + l.crioConfig(), "--config-dir=" + l.path("crio", "conf.d")}
	case kubeAPIServer:
		args = []string{
			"--etcd-servers=http://127.0.0.1:2379",
			"--advertise-address=" + n.Node.String(),
			fmt.Sprintf("--secure-port=%d", apiserverPort),
			"--tls-cert-file=" + l.pki("apiserver.crt"),
			"--tls-private-key-file=" + l.pki("apiserver.key"),
			"--client-ca-file=" + l.pki("ca.crt"),
			"--kubelet-certificate-authority=" + l.pki("ca.crt"),
			"--kubelet-client-certificate=" + l.pki("apiserver-kubelet-client.crt"),
			"--kubelet-client-key=" + l.pki("apiserver-kubelet-client.key"),
			"--kubelet-preferred-address-types=InternalIP",
			// Without these the scheduler's log fills with complaints.
			"--requestheader-client-ca-file=" + l.pki("ca.crt"),
			"--requestheader-allowed-names=" + frontProxyUser,
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + l.pki("front-proxy-client.crt"),
			"--proxy-client-key-file=" + l.pki("front-proxy-client.key"),
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + l.pki("service-account.crt"),
			"--service-account-signing-key-file=" + l.pki("service-account.key"),
			"--service-cluster-ip-range=" + serviceCIDR,
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
		}
		if len(versions) > 0 {
			args = append(args, "--runtime-config="+strings.Join(versions, "=true,")+"=true")
		}
	case kubeControllerManager:
		args = []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--root-ca-file=" + l.pki("ca.crt"),
			"--service-account-private-key-file=" + l.pki("service-account.key"),
			"--use-service-account-credentials=true",
			// It would make a directory below /usr.
			"--flex-volume-plugin-dir=" + l.path("volume-plugins"),
			"--leader-elect=false",
			// The default limits hold the controllers up for three seconds
			// when they all start.
			"--kube-api-qps=200",
			"--kube-api-burst=400",
		}
	case kubeScheduler:
		args = []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--leader-elect=false",
		}
	case kubeProxy:
		return []string{"--config=" + l.kubeProxyConfig()}
	case kubelet:
		return []string{
			"--config=" + l.kubeletConfig(),
			"--kubeconfig=" + kubeconfig,
			"--root-dir=" + l.KubeletRoot(),
			"--cert-dir=" + l.path("kubelet-pki"),
			"--hostname-override=" + l.NodeName(),
			"--node-ip=" + n.Node.String(),
		}
	}
	if len(featureGates) > 0 {
		args = append(args, "--feature-gates="+formatFeatureGates(featureGates))
	}
	return args
}

func formatFeatureGates(gates map[string]bool) string {
	var settings []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		settings = append(settings, fmt.Sprintf("%s=%t", name, gates[name]))
	}
	return strings.Join(settings, ",")
}

// joinCgroup puts a daemon into the cgroup $0 before it becomes the daemon. The
// daemon and all its descendants are then known as the cluster's.
const joinCgroup = `echo $$ >"$0/cgroup.procs" && exec "$@"`

// ownFolders mounts folders at other paths for one daemon alone. The arguments are pairs of both, and the daemon
// after "--". The mount that has the path becomes a slave, so that the machine does not see the new one.
// stat does not see a mount whose file system is that of the folder around it, which the path itself may be.
// The container runtime sees the mounts of volumes: they are below the state directory, which is a shared mount.
const ownFolders = `while [ "$1" != -- ]; do
  mkdir -p "$2" && { mount --make-slave "$2" 2>/dev/null || mount --make-slave "$(stat -c %m "$2")"; } &&
    mount --bind "$1" "$2" && shift 2 || exit
done; shift; exec "$@"`

// folders returns pairs of a folder and the path at which a daemon has it.
func folders(component string, l Layout) []string {
	var pairs []string
	if component == kubelet {
		// All kubelets have the same path, and no flag for it.
		pairs = append(pairs, l.DevicePluginsDir(), host.DevicePluginDir)
	}
	if !l.isFirst() && (component == kubelet || component == l.containerRuntime()) {
		pairs = append(pairs, l.State, l.first().State, l.socketsDir(), socketsDir)
	}
	return pairs
}

// daemon returns a component as a process in the cluster's cgroup and network
// namespace. It uses nsenter, because "ip netns exec" mounts a new /sys, which hides
// the cgroups from the kubelet.
func daemon(component string, args []string, l Layout, programs programs, cgroup string) process.Spec {
	command := []string{
		programs.shell, "-c", joinCgroup, cgroup,
		programs.nsenter, "--net=" + l.NetNS(), "--",
	}
	if pairs := folders(component, l); len(pairs) > 0 {
		command = append(command, programs.unshare, "--mount", "--propagation", "unchanged", "--", programs.shell, "-c", ownFolders, component)
		command = append(append(command, pairs...), "--")
	}
	return process.Spec{
		Name: component,
		Args: append(append(command, l.binary(component)), args...),
		// containerd finds its shim on the path, CRI-O pinns, and the kubelet
		// iptables and mount.
		Env: []string{"PATH=" + l.Bin + ":" + host.Path(), "HOME=/root"},
		Log: l.logFile(component),
	}
}

// programs of the machine, as absolute paths.
type programs struct {
	shell, nsenter, unshare, runc, busybox string
	// conmon is CRI-O's; with containerd it is empty.
	conmon string
}

func findPrograms(o Options) (programs, error) {
	var p programs
	wanted := map[string]*string{"sh": &p.shell, "nsenter": &p.nsenter, "unshare": &p.unshare, "runc": &p.runc, "busybox": &p.busybox}
	if o.ContainerRuntime == build.CRIO {
		wanted["conmon"] = &p.conmon
	}
	for name, path := range wanted {
		var err error
		if *path, err = host.LookPath(name); err != nil {
			return programs{}, err
		}
	}
	return p, nil
}
