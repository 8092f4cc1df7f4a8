package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// countersHold is the first release whose scheduler counts what shareable
// devices that are allocated take of their GPU's counters. Earlier ones count
// it for the claims of one scheduling cycle only, and then promise the GPU as a
// whole, in MIG devices and in time slices at once. The release of the API
// server stands for that of the scheduler, which tells nobody.
const countersHold = "1.36.2"

// versionTimeout bounds one question to the API server.
const versionTimeout = 10 * time.Second

// VersionFunc gives the version of the API server, such as "v1.37.1", or what it
// says instead.
type VersionFunc func(ctx context.Context) (string, error)

// ServerVersion asks the API server. One that refuses to tell has the version
// "forbidden", which is no reason to publish nothing.
func ServerVersion(client kubernetes.Interface) VersionFunc {
	server := discovery.ToServerVersionInterfaceWithContext(client.Discovery())
	return func(ctx context.Context) (string, error) {
		info, err := server.ServerVersionWithContext(ctx)
		switch {
		case apierrors.IsForbidden(err):
			return "forbidden", nil
		case err != nil:
			return "", fmt.Errorf("ask the API server for its version: %w", err)
		}
		return cmp.Or(info.GitVersion, "empty"), nil
	}
}

// learnVersion asks the API server for its version until that has succeeded
// once, and leaves out what takes counters where they do not hold or where that
// cannot be told. Nothing is published before, as nothing could be: the API
// server does not answer. Vendors add words behind a version that say nothing of
// its order, so only its numbers count.
func (c *Controller) learnVersion(ctx context.Context) error {
	c.mu.Lock()
	known := c.version == nil || c.apiVersion != ""
	c.mu.Unlock()
	if known {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	told, err := c.version(limited)
	if err != nil {
		return err
	}
	parsed, err := version.ParseGeneric(told)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apiVersion = told
	if err != nil || parsed.LessThan(version.MustParseGeneric(countersHold)) {
		c.catalog.NoCounters, c.tooOld = true, true
	}
	return nil
}

// warnTooOld says once why the node does not offer all that it is asked to.
// Callers hold mu.
func (c *Controller) warnTooOld(ctx context.Context) {
	if !c.tooOld || c.warned || !c.catalog.WantsCounters() {
		return
	}
	c.warned = true
	klog.FromContext(ctx).Info("WARNING: GPUs are offered neither in MIG devices made on demand nor in time slices: a scheduler as old as this cluster's API server would promise a GPU as a whole and in these at once; upgrade both, and restart this agent",
		"apiServer", c.apiVersion, "needed", countersHold)
}
