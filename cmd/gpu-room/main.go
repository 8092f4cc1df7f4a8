// SPDX-License-Identifier: Apache-2.0

// Command gpu-room evicts pods of a lower priority so that pods that wait for GPUs run.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/version"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/program"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/roomer"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/telemetry"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// A process that was killed holds the lease for leaseTime.
const leaseTime, renewTime, retryTime = 60 * time.Second, 40 * time.Second, 5 * time.Second

const long = `gpu-room makes room for pods that wait for GPUs: it evicts the fewest pods of a lower
priority whose end lets a pod run, as kubectl gpu room --evict does. One of several
processes does so at a time.

Every flag can be set by an environment variable as well: GPU_ROOM_ and its name in
capitals, for example GPU_ROOM_DRY_RUN for --dry-run.`

func main() { os.Exit(program.Execute(newCommand(), func() {})) }

func newCommand() *cobra.Command {
	o := options{}
	return program.Program{
		Name: "gpu-room", Short: "Evict pods of a lower priority so that pods that wait for GPUs run", Long: long,
		Flags: o.flags(), Environment: twins, Logging: o.logging, Complete: o.complete,
		Run: func(cmd *cobra.Command) error { return o.run(cmd.Context()) },
	}.Command()
}

// run makes room while this process has the lease.
func (o *options) run(ctx context.Context) (err error) {
	if o.Client, err = o.newClient(); err != nil {
		return err
	}
	if o.Instance, err = os.Hostname(); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	controller := roomer.New(o.Options, registry)
	leads, health := make(chan context.Context, 1), leaderelection.NewLeaderHealthzAdaptor(leaseTime)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "gpu-room"}, Client: o.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.Instance},
		},
		LeaseDuration: leaseTime, RenewDeadline: renewTime, RetryPeriod: retryTime, ReleaseOnCancel: true, WatchDog: health, Name: "gpu-room",
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(lead context.Context) { leads <- lead }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := health.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wait, err := telemetry.Serve(ctx, o.httpListen, mux, cancel)
	if err != nil {
		return err
	}
	defer wait()
	defer cancel(nil)
	ended := make(chan struct{})
	go func() { defer close(ended); elector.Run(ctx) }()
	select {
	case lead := <-leads:
		controller.Run(lead) //nolint:contextcheck // it ends with the lease, and so with ctx
		<-ended
	case <-ended:
	}
	if ctx.Err() == nil {
		return fmt.Errorf("renew the lease %s/gpu-room: %w", o.namespace, gpu.ErrTimeout)
	}
	return nil
}

func (o *options) newClient() (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if o.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster (a pod's service account, or --kubeconfig): %w", err)
	}
	config.QPS, config.Burst = 20, 40
	config.Timeout = renewTime
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "gpu-room/" + version.Get().GitVersion
	return kubernetes.NewForConfig(config)
}
