// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"embed"
	"fmt"
	"path/filepath"
	"strconv"
	"text/template"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/build"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

//go:embed config
var configTemplates embed.FS

const kubeletHealthPort = 10248

// renderConfig returns the configuration files of all components by path.
func renderConfig(l Layout, n network, o Options, p programs) (map[string][]byte, error) {
	files, socket, err := renderContainerd(l, p)
	if o.ContainerRuntime == build.CRIO {
		files, socket, err = renderCRIO(l, p)
	}
	if err != nil {
		return nil, err
	}
	cni, err := renderTemplate("cni.conflist", map[string]string{
		"Name":    l.cniNetwork(),
		"DataDir": l.path("cni-addresses"),
		"Subnet":  l.podRange().String(),
	})
	if err != nil {
		return nil, err
	}
	kubeletYAML, err := yaml.Marshal(kubeletConfiguration(l, n, socket, o.Release.FeatureGates))
	if err != nil {
		return nil, fmt.Errorf("kubelet configuration: %w", err)
	}
	kubeProxyYAML, err := yaml.Marshal(kubeProxyConfiguration(l, o.Release.FeatureGates))
	if err != nil {
		return nil, fmt.Errorf("kube-proxy configuration: %w", err)
	}
	files[filepath.Join(l.cniDir(), "10-ptp.conflist")] = cni
	files[l.kubeletConfig()] = kubeletYAML
	files[l.kubeProxyConfig()] = kubeProxyYAML
	return files, nil
}

// renderContainerd returns containerd's files and its socket.
func renderContainerd(l Layout, p programs) (files map[string][]byte, socket string, err error) {
	config, err := renderTemplate("containerd.toml", map[string]string{
		"Root":        l.path("containerd", "root"),
		"State":       l.containerdState(),
		"Socket":      l.ContainerdSocket(),
		"TTRPCSocket": l.ContainerdSocket() + ".ttrpc",
		"Opt":         l.path("containerd", "opt"),
		"ShimSockets": l.path("s"),
		"PauseImage":  pauseImage,
		"CDIDir":      l.CDIDir(),
		"Runtime":     p.runc,
		"RuntimeRoot": l.path("containerd", "runc"),
		"Bin":         l.Bin,
		"CNIConf":     l.cniDir(),
	})
	return map[string][]byte{l.containerdConfig(): config}, l.ContainerdSocket(), err
}

func (l Layout) containerdConfig() string { return filepath.Join(l.configDir(), "containerd.toml") }
func (l Layout) kubeletConfig() string    { return filepath.Join(l.configDir(), "kubelet.yaml") }
func (l Layout) kubeProxyConfig() string  { return filepath.Join(l.configDir(), "kube-proxy.yaml") }
func (l Layout) containerdState() string  { return l.path("containerd", "state") }
func (l Layout) cniDir() string           { return filepath.Join(l.configDir(), "cni") }

// cniNetwork names the cluster's pod network. CNI keeps files of that name at
// a fixed place, and Down removes them.
func (l Layout) cniNetwork() string { return "gpu-dra-" + l.Name }

func renderTemplate(name string, values map[string]string) ([]byte, error) {
	// A Go string literal without unusual characters is one of TOML and JSON.
	t, err := template.New(name).Funcs(template.FuncMap{"quote": strconv.Quote}).ParseFS(configTemplates, "config/"+name)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := t.Option("missingkey=error").Execute(&out, values); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	return out.Bytes(), nil
}

func kubeletConfiguration(l Layout, n network, socket string, featureGates map[string]bool) *kubeletconfig.KubeletConfiguration {
	return &kubeletconfig.KubeletConfiguration{
		TypeMeta:                 metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		ContainerRuntimeEndpoint: "unix://" + socket,
		FeatureGates:             featureGates,

		Address: n.Node.String(),
		// The health check runs on the host, outside the namespace.
		HealthzBindAddress: n.Node.String(),
		HealthzPort:        ptr.To[int32](kubeletHealthPort),
		TLSCertFile:        l.pki("kubelet.crt"),
		TLSPrivateKeyFile:  l.pki("kubelet.key"),
		Authentication: kubeletconfig.KubeletAuthentication{
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: ptr.To(false)},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: ptr.To(true)},
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: l.pki("ca.crt")},
		},
		Authorization: kubeletconfig.KubeletAuthorization{Mode: kubeletconfig.KubeletAuthorizationModeWebhook},

		// After this time, half as long again at most, a pod is tried again whose claim
		// could not be prepared. The default is a minute.
		SyncFrequency: metav1.Duration{Duration: 4 * time.Second},

		CgroupDriver: "cgroupfs",
		CgroupRoot:   l.Cgroup(),
		// A test machine may still use version 1, and may have swap.
		FailCgroupV1: ptr.To(false),
		FailSwapOn:   ptr.To(false),

		PodLogsDir:      filepath.Join(l.LogsDir(), "pods"),
		VolumePluginDir: l.path("volume-plugins"),
		// cAdvisor finds no file system statistics for some root disks.
		LocalStorageCapacityIsolation: ptr.To(false),
		// A test may pull an image that is loaded under another name too. By default the
		// kubelet then verifies the credentials for all names of that image, and pods that
		// must not pull it do not start.
		ImagePullCredentialsVerificationPolicy: kubeletconfig.NeverVerify,
		// Images come from archives only: one that is collected is lost.
		ImageGCHighThresholdPercent: ptr.To[int32](100),
		ImageGCLowThresholdPercent:  ptr.To[int32](99),
		// No test wants an eviction. 0% is what turns a threshold off.
		EvictionHard: map[string]string{
			"memory.available":   "0%",
			"nodefs.available":   "0%",
			"nodefs.inodesFree":  "0%",
			"imagefs.available":  "0%",
			"imagefs.inodesFree": "0%",
		},

		// Nothing answers there. Without an address every pod would carry a
		// warning that the cluster has no DNS.
		ClusterDNS:    []string{"10.96.0.10"},
		ClusterDomain: "cluster.local",
	}
}

func kubeProxyConfiguration(l Layout, featureGates map[string]bool) *kubeproxyconfig.KubeProxyConfiguration {
	config := &kubeproxyconfig.KubeProxyConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: kubeproxyconfig.SchemeGroupVersion.String(), Kind: "KubeProxyConfiguration"},
		FeatureGates:     featureGates,
		HostnameOverride: l.NodeName(),
		Mode:             "iptables",
		ClusterCIDR:      podCIDR,
		// Zero leaves the kernel's table size alone, which a namespace may not
		// change.
		Conntrack: kubeproxyconfig.KubeProxyConntrackConfiguration{
			MaxPerCore:            ptr.To[int32](0),
			TCPEstablishedTimeout: &metav1.Duration{},
			TCPCloseWaitTimeout:   &metav1.Duration{},
		},
	}
	config.ClientConnection.Kubeconfig = l.kubeconfigOf(kubeProxy)
	return config
}
