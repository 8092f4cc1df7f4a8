// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/controlplane"
)

const (
	// attempts is the number of timed runs of a command, of which the median counts. A command
	// that takes longer than slow is timed once.
	attempts, slow = 3, 10 * time.Second
	// commandTimeout is the longest time of a command.
	commandTimeout = 2 * time.Minute
)

// command is a command of the plugin.
type command struct {
	args []string
	// page is the path of a page that the command "ui" serves.
	page string
}

func (c command) String() string { return strings.TrimSpace(strings.Join(c.args, " ") + " " + c.page) }

// commandResult has the figures of a command. Times are in seconds.
type commandResult struct {
	Plugin  string
	Command string
	// Seconds is the median. Processor is the processor time of the command in that run,
	// and APIServer the one of the API server.
	Seconds   float64
	Processor float64
	APIServer float64
	Requests  int
	// Bytes is the size of the answers, as they are sent.
	Bytes int64
	// Failure is the last line of standard error if the exit status is not 0.
	Failure string
}

// commands returns the commands that only read.
func (u *fleetInUse) commands(manifests string) []command {
	node, ns := nodeName(1), "--namespace="+team(0)
	all := []command{
		{args: []string{"get"}}, {args: []string{"get", node}}, {args: []string{"get", "--output=json"}}, {args: []string{"get", "--used"}},
		{args: []string{"who", "--all-namespaces"}}, {args: []string{"who", ns}},
		{args: []string{"usage"}}, {args: []string{"usage", ns}},
		{args: []string{"free", "gpu.nvidia.com"}}, {args: []string{"free", "mps.nvidia.com"}}, {args: []string{"free", "mig.nvidia.com"}}, {args: []string{"free"}},
		{args: []string{"explain", u.running, ns}}, {args: []string{"explain", u.waiting, ns}},
		{args: []string{"topo", node}},
		{args: []string{"plan", "--filename=" + manifests}},
		{args: []string{"doctor", node}}, {args: []string{"doctor"}},
	}
	for _, page := range []string{"", "nodes/" + node, "holders", "pods", "pods/" + team(0) + "/" + u.running, "pods/" + team(0) + "/" + u.waiting, "namespaces", "findings"} {
		all = append(all, command{[]string{"ui"}, "/" + page})
	}
	return all
}

// measureCommands measures the commands of the plugin on a fleet in use.
func measureCommands(ctx context.Context, o options, hardware gpu.Node, classes []*resourceapi.DeviceClass) (err error) {
	agents, u, err := serveAgents(ctx)
	if err != nil {
		return err
	}
	defer agents.Close() //nolint:errcheck // it has served
	u.parts = split(fleet{hardware: hardware, classes: classes, nodes: o.nodes, seed: o.seed})
	c, err := controlplane.Start(ctx, o.bin, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := u.write(ctx, c.Client); err != nil {
		return err
	}
	counter, err := countRequests(ctx, c.Kubeconfig())
	if err != nil {
		return err
	}
	defer counter.Close() //nolint:errcheck // it has served
	var results []commandResult
	plugins := strings.Split(o.commands, ",")
	for _, cmd := range u.commands("demo/whole-gpu/one-gpu.yaml") {
		measured, err := measureCommand(ctx, plugins, c, counter, cmd)
		if err != nil {
			return fmt.Errorf("%s: %w", cmd, err)
		}
		for _, r := range measured {
			progress("%s %s: %.1f s, %.1f s of processor, %.1f s of the API server, %d requests, %.1f MB %s", r.Plugin, r.Command, r.Seconds, r.Processor, r.APIServer, r.Requests, float64(r.Bytes)/1e6, r.Failure)
		}
		results = append(results, measured...)
	}
	return reportCommands(os.Stdout, o, results)
}

// measureCommand measures the command of each plugin. It alternates the plugins, so that other
// work on the machine slows all of them.
func measureCommand(ctx context.Context, plugins []string, c *controlplane.ControlPlane, counter *requestCounter, cmd command) ([]commandResult, error) {
	runs := make([][]commandResult, len(plugins))
	for range attempts {
		for i, plugin := range plugins {
			if len(runs[i]) > 0 && runs[i][0].Seconds > slow.Seconds() {
				continue
			}
			r, err := timeCommand(ctx, plugin, c, cmd)
			if err != nil {
				return nil, err
			}
			runs[i] = append(runs[i], r)
		}
	}
	var medians []commandResult
	for i, plugin := range plugins {
		slices.SortFunc(runs[i], func(a, b commandResult) int { return cmp.Compare(a.Seconds, b.Seconds) })
		r := runs[i][len(runs[i])/2]
		// Counting costs time, so it has a run of its own.
		counter.reset()
		if _, err := runCommand(ctx, plugin, counter.kubeconfig, cmd); err != nil {
			return nil, err
		}
		r.Requests, r.Bytes = counter.read()
		medians = append(medians, r)
	}
	return medians, nil
}

func timeCommand(ctx context.Context, plugin string, c *controlplane.ControlPlane, cmd command) (commandResult, error) {
	before, err := c.APIServer.ProcessorTime()
	if err != nil {
		return commandResult{}, err
	}
	r, err := runCommand(ctx, plugin, c.Kubeconfig(), cmd)
	if err != nil {
		return r, err
	}
	after, err := c.APIServer.ProcessorTime()
	r.APIServer = (after - before).Seconds()
	return r, err
}

// runCommand runs the plugin once. A page ends it. A plugin that a signal ends is an error,
// except at the longest time.
func runCommand(ctx context.Context, plugin, kubeconfig string, c command) (commandResult, error) {
	all := ctx
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, plugin, append(slices.Clone(c.args), "--kubeconfig="+kubeconfig)...)
	var failure strings.Builder
	cmd.Stderr = &failure
	r := commandResult{Plugin: plugin, Command: c.String()}
	began := time.Now()
	var err error
	if c.page == "" {
		err = cmd.Run()
		r.Seconds = time.Since(began).Seconds()
	} else {
		r.Seconds, err = runPage(ctx, cmd, c.page)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		lines := strings.Split(strings.TrimSpace(failure.String()), "\n")
		r.Failure, err = lines[len(lines)-1], nil
	}
	if cmd.ProcessState != nil {
		r.Processor = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	}
	if ctx.Err() != nil && all.Err() == nil {
		r.Failure, err = "ended after "+commandTimeout.String(), nil
	}
	return r, errors.Join(err, all.Err())
}

// runPage starts the pages, and returns the seconds until one of them is there.
func runPage(ctx context.Context, cmd *exec.Cmd, page string) (float64, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	took, err := getPage(ctx, out, page, began)
	if stop := cmd.Process.Signal(syscall.SIGINT); stop != nil {
		return took, errors.Join(err, stop)
	}
	return took, errors.Join(err, cmd.Wait())
}

func getPage(ctx context.Context, out io.Reader, page string, began time.Time) (float64, error) {
	var address *url.URL
	for lines := bufio.NewScanner(out); address == nil && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "http://") {
			var err error
			if address, err = url.Parse(lines.Text()); err != nil {
				return 0, err
			}
		}
	}
	if address == nil {
		return 0, errors.New("the pages have no address")
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return 0, err
	}
	// Not each resolver knows the names below localhost.
	port := address.Port()
	var dialer net.Dialer
	client := &http.Client{Jar: jar, Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, "127.0.0.1:"+port)
	}}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(at *url.URL) (int, error) {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return 0, err
		}
		response, err := client.Do(q)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close() //nolint:errcheck // it was read
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	// The address with the token sets a cookie.
	if _, err := get(address); err != nil {
		return 0, err
	}
	status, err := get(&url.URL{Scheme: address.Scheme, Host: address.Host, Path: page})
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("page %s: status %d", page, status)
	}
	return time.Since(began).Seconds(), err
}

func reportCommands(w io.Writer, o options, results []commandResult) error {
	if _, err := fmt.Fprintf(w, "%d nodes, %d pods, seed %d\n\n", o.nodes, o.nodes*podsOfNode, o.seed); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PLUGIN\tCOMMAND\tSECONDS\tPROCESSOR s\tAPI SERVER s\tREQUESTS\tMB\tFAILURE") //nolint:errcheck // Flush reports it
	for _, r := range results {
		//nolint:errcheck // Flush reports it
		fmt.Fprintf(table, "%s\t%s\t%.2f\t%.2f\t%.2f\t%d\t%.1f\t%s\n", filepath.Base(r.Plugin), r.Command, r.Seconds, r.Processor, r.APIServer, r.Requests, float64(r.Bytes)/1e6, r.Failure)
	}
	return table.Flush()
}

// writeKubeconfig writes a kubeconfig of another server with the same token.
func writeKubeconfig(from, to, server string) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.InsecureSkipTLSVerify = server, false
	}
	return clientcmd.WriteToFile(*config, filepath.Clean(to))
}
