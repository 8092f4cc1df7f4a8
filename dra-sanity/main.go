// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the clean-up
	failed, err := run(ctx, os.Args[1:], os.Stdout, defaultWaits())
	if err != nil {
		fmt.Fprintln(os.Stderr, "dra-sanity:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

const usage = `dra-sanity holds a DRA driver to what the kubelet and the API promise.

  dra-sanity --driver-name NAME --exec "COMMAND"
      Runs COMMAND by a shell, on a node of its own. The command finds in its environment: KUBECONFIG, NODE_NAME,
      KUBELET_DIR, PLUGINS_DIR, REGISTRY_DIR, CDI_DIR, and POD_UID, another one for each start.

  dra-sanity --driver-name NAME --kubeconfig FILE --node NAME
      Uses the driver of a node of a cluster, where it must run as root. It kills nothing. Nothing else may use the
      driver at that time.

Status 1 if a scenario fails, 2 if the test itself cannot run.
`

func run(ctx context.Context, args []string, stdout io.Writer, w waits) (failed bool, err error) {
	flags := flag.NewFlagSet("dra-sanity", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	n := &node{waits: w}
	flags.StringVar(&n.driverName, "driver-name", "", "name of the driver, as in its ResourceSlices")
	flags.StringVar(&n.command, "exec", "", "command that starts the driver")
	flags.StringVar(&n.kubeconfig, "kubeconfig", "", "access to a cluster in which the driver runs")
	flags.StringVar(&n.name, "node", "sanity-node", "name of the node")
	flags.StringVar(&n.kubelet, "kubelet-dir", "", "root folder of the kubelet (default: /var/lib/kubelet, or a temporary one with --exec)")
	flags.StringVar(&n.cdi, "cdi-dir", "", "folder of CDI specs (default: /var/run/cdi, or a temporary one with --exec)")
	flags.BoolVar(&n.usesNRI, "nri", false, "the driver gives devices to containers by NRI, so that its answers may have none")
	flags.IntVar(&n.many, "claims", 500, "number of claims of the scenario many")
	only := flags.String("run", ".", "regular expression of the scenarios to run")
	format := flags.String("output", "text", "text, json or junit")
	list := flags.Bool("list", false, "list the scenarios with what they want")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return false, nil
		}
		return false, err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return false, fmt.Errorf("--run: %w", err)
	}
	write, ok := formats[*format]
	switch {
	case !ok:
		return false, fmt.Errorf("--output %q: want text, json or junit", *format)
	case *list:
		return false, writeList(stdout)
	case n.driverName == "":
		return false, errors.New("--driver-name is missing")
	case (n.command == "") == (n.kubeconfig == ""):
		return false, errors.New("want either --exec or --kubeconfig")
	case flags.NArg() > 0:
		return false, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	chosen := slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return !pattern.MatchString(s.id) })
	if len(chosen) == 0 {
		return false, fmt.Errorf("--run %q matches no scenario", *only)
	}
	end, err := n.open(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, end()) }()
	results := n.runAll(ctx, chosen)
	for _, r := range results {
		failed = failed || r.Verdict == failure
	}
	return failed, errors.Join(ctx.Err(), write(stdout, n.driverName, results))
}

// open starts the API server and the driver, or connects to a cluster. end stops what it has started.
func (n *node) open(ctx context.Context) (end func() error, err error) {
	remove := func() error { return nil }
	if n.command == "" {
		n.kubelet, n.cdi = cmp.Or(n.kubelet, "/var/lib/kubelet"), cmp.Or(n.cdi, "/var/run/cdi")
		n.registry = filepath.Join(n.kubelet, "plugins_registry")
	} else if remove, err = n.makeNode(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, remove())
		}
	}()
	config, err := clientcmd.BuildConfigFromFlags("", n.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent, config.QPS, config.Burst = ownAgent, -1, -1
	if n.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if n.command == "" {
		return remove, nil
	}
	// Drivers own their slices by the node.
	if _, err := n.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if n.driver, err = n.startDriver(); err != nil {
		return nil, err
	}
	// Drivers publish nothing before the kubelet has registered them. The first scenario says why one has not.
	_, _ = n.awaitPlugin(ctx)
	return func() error {
		return errors.Join(n.driver.signal(context.WithoutCancel(ctx), syscall.SIGKILL), remove())
	}, nil
}

// makeNode makes the folders of a node and an API server. end removes the folders, but for the driver's log.
func (n *node) makeNode(ctx context.Context) (end func() error, err error) {
	// Paths of sockets have at most 108 bytes.
	dir, err := os.MkdirTemp("", "dra-")
	if err != nil {
		return nil, err
	}
	// The server is needed for the clean-up after a signal, too.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			stop()
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	own := filepath.Join(dir, "n") // removed at the end; folders that the user has named, and the log, stay
	n.kubelet, n.cdi = cmp.Or(n.kubelet, filepath.Join(own, "k")), cmp.Or(n.cdi, filepath.Join(own, "cdi"))
	n.registry, n.log, n.kubeconfig = filepath.Join(n.kubelet, "plugins_registry"), filepath.Join(dir, "driver.log"), filepath.Join(own, "kubeconfig")
	for _, folder := range []string{n.registry, filepath.Join(n.kubelet, "plugins"), n.cdi} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	if n.server, err = startAPIServer(serving); err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["sanity"] = &clientcmdapi.Cluster{Server: n.server.url()}
	config.Contexts["sanity"] = &clientcmdapi.Context{Cluster: "sanity"}
	config.CurrentContext = "sanity"
	if err := clientcmd.WriteToFile(*config, n.kubeconfig); err != nil {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "the driver's log is", n.log)
	return func() error { stop(); return os.RemoveAll(own) }, nil
}

// runAll runs scenarios one after the other, until a signal ends ctx.
func (n *node) runAll(ctx context.Context, chosen []scenario) []result {
	var results []result
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}
		began := time.Now()
		err := s.run(ctx, n)
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
		if cleanErr := n.clean(cleaning); cleanErr != nil {
			if errors.Is(err, errSkipped) {
				err = nil // a skipped scenario that leaves something fails
			}
			err = errors.Join(err, fmt.Errorf("after the scenario: %w", cleanErr))
		}
		cancel()
		r := result{ID: s.id, Want: s.want, Source: s.source, Verdict: success, Seconds: time.Since(began).Seconds()}
		switch {
		case errors.Is(err, errSkipped):
			r.Verdict, r.Message = skip, printable(err.Error())
		case err != nil:
			r.Verdict, r.Message = failure, printable(err.Error())
		}
		fmt.Fprintf(os.Stderr, "%-22s %s\n", r.ID, r.Verdict)
		results = append(results, r)
	}
	return results
}
