// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/environment"
	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/program"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/roomer"
)

// twins is the prefix of the flags' environment variables.
const twins = environment.Prefix("GPU_ROOM_")

// options holds the values of all flags.
type options struct {
	roomer.Options
	namespace, kubeconfig, httpListen string

	logging *logsapi.LoggingConfiguration
}

// flags declares every flag, in the groups that --help shows.
func (o *options) flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	fs := sets.FlagSet("room")
	fs.DurationVar(&o.After, "after", 2*time.Minute, "time that a pod waits before room is made for it")
	fs.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "time for the evicted pods to end and the pod to get its node, during which its devices are kept for it")
	fs.IntVar(&o.EvictionsPerHour, "evictions-per-hour", 10, "the most pods to evict in an hour, counted from the start of the process")
	fs.BoolVar(&o.DryRun, "dry-run", false, "evict nothing, and say in events and the log what would be evicted")

	fs = sets.FlagSet("cluster")
	fs.StringVar(&o.Driver, "driver-name", v1alpha1.DriverName, "`NAME` of the driver whose devices are freed")
	fs.StringVar(&o.namespace, "namespace", "gpu-dra-driver", "`NAME` of the namespace with the lease by which one of several processes is chosen")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` with the address and credentials of the API server (default: the service account of the pod)")
	fs.StringVar(&o.httpListen, "http-listen", ":8080", "`ADDRESS` of /metrics and /healthz")

	o.logging = program.LoggingFlags(&sets)
	return sets
}

// complete returns an error for flags that cannot work.
func (o *options) complete() error {
	switch {
	case o.After < 0:
		return program.Invalid("after", o.After, "want 0s or more")
	case o.Timeout < 10*time.Second:
		return program.Invalid("timeout", o.Timeout, "want at least 10s")
	case o.EvictionsPerHour < 1:
		return program.Invalid("evictions-per-hour", o.EvictionsPerHour, "want at least 1")
	}
	return nil
}
