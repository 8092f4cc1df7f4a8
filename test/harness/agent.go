package harness

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

const (
	// DriverName is the driver's name in ResourceSlices and claims.
	DriverName = "gpu.nvidia.com"

	agentNamespace      = "gpu-dra-driver"
	agentServiceAccount = "gpu-kubelet-plugin"
)

// Agent is gpu-kubelet-plugin on the cluster's node, on simulated hardware.
// Its process outlives the program that started it, and ends with the cluster.
type Agent struct {
	cluster *Cluster
	dir     string
	model   string
	flags   []string
}

// NewAgent describes an agent that sees the hardware of a simulator's model, by
// name or by a file's path from the top of the repository, with further flags of
// gpu-kubelet-plugin. One agent runs at a time; each model has hardware and
// records of its own.
func (c *Cluster) NewAgent(model string, flags ...string) *Agent {
	name, isFile := strings.CutSuffix(filepath.Base(model), ".yaml")
	if isFile && !filepath.IsAbs(model) {
		model = filepath.Join(c.Root, model)
	}
	return &Agent{cluster: c, dir: filepath.Join(c.StateDir, "agent", name), model: model, flags: flags}
}

// SimDir is the folder with the simulator's state.
func (a *Agent) SimDir() string { return filepath.Join(a.dir, "sim") }

// StateDir is the folder with the agent's records.
func (a *Agent) StateDir() string { return filepath.Join(a.dir, "state") }

// Kubeconfig is the agent's own, with its rights.
func (a *Agent) Kubeconfig() string { return filepath.Join(a.dir, "kubeconfig") }

// LogFile is where the agent's output goes.
func (a *Agent) LogFile() string { return filepath.Join(a.dir, "agent.log") }

// Start starts the agent and waits until it says it is ready. An agent that
// runs already is stopped first.
func (a *Agent) Start(ctx context.Context) error {
	if err := a.Launch(ctx); err != nil {
		return err
	}
	return a.WaitReady(ctx)
}

// Launch starts the agent without waiting for anything.
func (a *Agent) Launch(ctx context.Context) error {
	if err := a.Stop(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	kubeconfig, err := a.writeKubeconfig(ctx)
	if err != nil {
		return err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	c := a.cluster
	args := append([]string{
		"start", "agent", "--log", a.LogFile(), "--",
		filepath.Join(c.Bin, "gpu-kubelet-plugin"),
		"--hardware=sim:" + a.model,
		"--sim-state=" + a.SimDir(),
		"--node-name=" + c.NodeName,
		"--kubeconfig=" + kubeconfig,
		"--kubelet-plugins-dir=" + c.PluginsDir,
		"--kubelet-registry-dir=" + c.PluginsRegistryDir,
		"--kubelet-pod-resources=" + filepath.Join(filepath.Dir(c.PluginsDir), "pod-resources", "kubelet.sock"),
		"--cdi-dir=" + c.CDIDir,
		"--state-dir=" + a.StateDir(),
		"--cdi-hook=" + filepath.Join(c.Bin, "nvidia-cdi-hook"),
		"--mps-supervisor=" + a.Supervisor().Socket(),
		"--http-listen=" + address,
		"-v=4",
	}, a.flags...)
	if err := c.tool(ctx, args...); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	return os.WriteFile(a.addressFile(), []byte(address), 0o600)
}

// WaitReady waits until the agent answers /readyz with success, and says
// otherwise what it answered.
func (a *Agent) WaitReady(ctx context.Context) error {
	err := Until(ctx, time.Minute, func(ctx context.Context) (bool, string, error) {
		status, body, err := a.Get(ctx, "/readyz")
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // it does not listen yet
		}
		return status == http.StatusOK, body, nil
	})
	if err != nil {
		return fmt.Errorf("agent not ready: %w\n%s", err, a.LogTail())
	}
	return nil
}

// Get asks the agent's HTTP server for a path such as /metrics.
func (a *Agent) Get(ctx context.Context, path string) (status int, body string, err error) {
	address, err := os.ReadFile(a.addressFile())
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(address)+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // only read from
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// Stop asks the agent to end, as the kubelet does, and waits for it.
func (a *Agent) Stop(ctx context.Context) error { return a.cluster.tool(ctx, "stop", "agent") }

// Kill ends the agent at once, as a crash does.
func (a *Agent) Kill(ctx context.Context) error { return a.cluster.tool(ctx, "stop", "agent", "--now") }

// LogTail is the end of the agent's log, for a failure's message.
func (a *Agent) LogTail() string { return tail(a.LogFile()) }

func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// Sim runs gpu-sim on the agent's hardware and returns what it printed.
func (a *Agent) Sim(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(a.cluster.Bin, "gpu-sim"), append(args, "--state", a.SimDir())...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gpu-sim %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// addressFile tells other programs where the agent serves HTTP.
func (a *Agent) addressFile() string { return filepath.Join(a.dir, "address") }

// writeKubeconfig gives the agent the rights it has in a pod: its service
// account's, with a token bound to the node.
func (a *Agent) writeKubeconfig(ctx context.Context) (string, error) {
	c := a.cluster
	node, err := c.Client.CoreV1().Nodes().Get(ctx, c.NodeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	token, err := c.Client.CoreV1().ServiceAccounts(agentNamespace).CreateToken(ctx, agentServiceAccount, &authv1.TokenRequest{
		Spec: authv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To(int64(24 * 60 * 60)),
			BoundObjectRef:    &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get a token for the agent: %w", err)
	}
	return a.Kubeconfig(), clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: c.config.Host, CertificateAuthorityData: c.config.CAData, CertificateAuthority: c.config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"agent": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"agent": {Cluster: "test", AuthInfo: "agent"}},
		CurrentContext: "agent",
	}, a.Kubeconfig())
}

func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
