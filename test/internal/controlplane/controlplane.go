// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real etcd, API server and scheduler without nodes: the objects
// of nodes, slices and claims are enough to have pods scheduled.
package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// token is the credential of the scheduler and of this program. The API server listens
// on the loopback interface only, and ends with the run.
const token = "controlplane"

// ControlPlane is a running etcd, API server and scheduler.
type ControlPlane struct {
	// Client has all rights.
	Client kubernetes.Interface
	// APIServer and Scheduler are the processes, and SchedulerClient calls the scheduler's
	// own server.
	APIServer, Scheduler *Process
	SchedulerClient      rest.Interface

	folder string
	etcd   *Process
}

// Process is a child process.
type Process struct {
	cmd *exec.Cmd
	log string
	// ended is closed after the end.
	ended chan struct{}
}

// Start starts the programs of a folder. The scheduler considers the percentage
// of the nodes for a pod; 0 is its own choice.
func Start(ctx context.Context, bin string, percentage int) (_ *ControlPlane, err error) {
	c := &ControlPlane{}
	if c.folder, err = os.MkdirTemp("", "controlplane-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	ports, err := freePorts(ctx, 4)
	if err != nil {
		return nil, err
	}
	etcdURL := "http://127.0.0.1:" + ports[0]
	if c.etcd, err = c.start(ctx, bin, "etcd", "--data-dir="+c.path("etcd"), "--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls=http://127.0.0.1:"+ports[1], "--unsafe-no-fsync", "--log-level=error", "--quota-backend-bytes=8589934592"); err != nil {
		return nil, err
	}
	if err := c.writeCredentials("https://127.0.0.1:"+ports[2], percentage); err != nil {
		return nil, err
	}
	if c.APIServer, err = c.start(ctx, bin, "kube-apiserver", "--etcd-servers="+etcdURL, "--bind-address=127.0.0.1", "--secure-port="+ports[2],
		"--cert-dir="+c.path("certificates"), "--token-auth-file="+c.path("tokens.csv"), "--authorization-mode=RBAC", "--anonymous-auth=false",
		"--service-account-issuer=https://controlplane", "--service-account-key-file="+c.path("key.pem"), "--service-account-signing-key-file="+c.path("key.pem"),
		"--service-cluster-ip-range=10.96.0.0/16",
		// No controller manager removes the taint of new nodes or makes service accounts.
		"--disable-admission-plugins=TaintNodesByCondition,ServiceAccount",
		"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000"); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.path("kubeconfig"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.ContentType, config.AcceptContentTypes = -1, "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	if c.Client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if err := c.ready(ctx, c.Client.Discovery().RESTClient()); err != nil {
		return nil, fmt.Errorf("the API server: %w", err)
	}
	if c.Scheduler, err = c.start(ctx, bin, "kube-scheduler", "--config="+c.path("scheduler.yaml"), "--bind-address=127.0.0.1", "--secure-port="+ports[3],
		"--authentication-kubeconfig="+c.path("kubeconfig"), "--authorization-kubeconfig="+c.path("kubeconfig")); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(config)
	own.Host, own.TLSClientConfig = "https://127.0.0.1:"+ports[3], rest.TLSClientConfig{Insecure: true}
	scheduler, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, err
	}
	c.SchedulerClient = scheduler.Discovery().RESTClient()
	if err := c.ready(ctx, c.SchedulerClient); err != nil {
		return nil, fmt.Errorf("the scheduler: %w", err)
	}
	return c, nil
}

func (c *ControlPlane) path(elem ...string) string {
	return filepath.Join(append([]string{c.folder}, elem...)...)
}

// start starts a program, whose log goes to a file.
func (c *ControlPlane) start(ctx context.Context, bin, name string, args ...string) (*Process, error) {
	d := &Process{log: c.path(name + ".log"), ended: make(chan struct{})}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has it
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(bin, name), args...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w; .build/bin/cluster up builds it", name, err)
	}
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait() // its log has the reason
	}()
	return d, nil
}

// Stop ends the programs and removes their files.
func (c *ControlPlane) Stop() error {
	for _, d := range []*Process{c.Scheduler, c.APIServer, c.etcd} {
		if d != nil {
			_ = d.cmd.Process.Kill() // it may have ended
			<-d.ended
		}
	}
	return os.RemoveAll(c.folder)
}

// RemovePod removes a pod and, if it has one, the claim of the same name. No controller
// manager removes the finalizer of a claim.
func RemovePod(ctx context.Context, client kubernetes.Interface, namespace, name string, claimed bool) error {
	var now int64
	if err := client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil || !claimed {
		return err
	}
	claims := client.ResourceV1().ResourceClaims(namespace)
	if err := claims.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err := claims.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	// A claim that was not allocated has no finalizer and is gone.
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ready waits until a server is ready.
func (c *ControlPlane) ready(ctx context.Context, server rest.Interface) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, d := range []*Process{c.etcd, c.APIServer, c.Scheduler} {
			if d == nil {
				continue
			}
			select {
			case <-d.ended:
				text, _ := os.ReadFile(d.log)
				return false, fmt.Errorf("%s has ended: %s", filepath.Base(d.cmd.Path), text[max(0, len(text)-2000):])
			default:
			}
		}
		last = server.Get().AbsPath("/readyz").Do(ctx).Error()
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return errors.Join(err, last)
	}
	return err
}

// writeCredentials writes the keys, tokens and configurations of the programs.
func (c *ControlPlane) writeCredentials(server string, percentage int) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	kubeconfig := api.Config{
		Clusters:       map[string]*api.Cluster{"controlplane": {Server: server, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*api.AuthInfo{"controlplane": {Token: token}},
		Contexts:       map[string]*api.Context{"controlplane": {Cluster: "controlplane", AuthInfo: "controlplane"}},
		CurrentContext: "controlplane",
	}
	// The scheduler's own client must not limit it.
	scheduler := `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: ` + c.path("kubeconfig") + `, qps: 5000, burst: 5000}
percentageOfNodesToScore: ` + strconv.Itoa(percentage) + `
`
	return errors.Join(
		os.WriteFile(c.path("key.pem"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600),
		os.WriteFile(c.path("tokens.csv"), []byte(token+",controlplane,controlplane,system:masters\n"), 0o600),
		os.WriteFile(c.path("scheduler.yaml"), []byte(scheduler), 0o600),
		clientcmd.WriteToFile(kubeconfig, c.path("kubeconfig")),
	)
}

// ProcessorTime returns the time that the process has used of the processors.
func (d *Process) ProcessorTime() (time.Duration, error) {
	stat, err := d.stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}

// Memory returns the resident memory in bytes.
func (d *Process) Memory() (int64, error) {
	stat, err := d.stat()
	return int64(stat.ResidentMemory()), err
}

func (d *Process) stat() (procfs.ProcStat, error) {
	process, err := procfs.NewProc(d.cmd.Process.Pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return process.Stat()
}

// freePorts returns ports of the loopback interface that no process uses.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var ports []string
	for range n {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() //nolint:errcheck // nothing was sent
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
