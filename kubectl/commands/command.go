// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/component-base/version"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/lists"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
)

// options are the flags of all commands.
type options struct {
	genericiooptions.IOStreams
	// config is the user's kubeconfig with the flags that override it.
	config  clientcmd.ClientConfig
	connect connectFunc
	driver  string
	// driverNamespace is the namespace of the driver; "" for the one that its policies name.
	driverNamespace string
	output          string
	// template is the one in output; nil for a format without one.
	template *jsonpath.JSONPath
	// selector and sortBy are flags of commands that print rows about nodes.
	selector, sortBy string
	// partial is true if the user may not read all claims and pods that were read last.
	partial bool
	// used is true if the user requests the use of devices from the agents.
	used bool
	// width returns the width of the terminal; 0 if the output goes elsewhere.
	width func() int
}

// connectFunc returns a client of the cluster that the flags name.
type connectFunc func(clientcmd.ClientConfig) (kubernetes.Interface, error)

// Run runs the command "kubectl gpu" with its arguments, prints its error, and returns the exit
// status.
func Run(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	cmd := New(streams) //nolint:contextcheck // the commands have it from ExecuteContext
	cmd.SetArgs(args)
	return execute(ctx, cmd, streams)
}

func execute(ctx context.Context, cmd *cobra.Command, streams genericiooptions.IOStreams) int {
	if err := cmd.ExecuteContext(ctx); err != nil {
		if status := exitStatus(0); errors.As(err, &status) {
			return int(status)
		}
		fmt.Fprintln(plain.Writer(streams.ErrOut), "Error:", unreachable(err)) //nolint:errcheck // there is no other place to say so
		return 1
	}
	return 0
}

// New returns the command "kubectl gpu".
func New(streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(streams, connect)
}

func connect(user clientcmd.ClientConfig) (kubernetes.Interface, error) {
	config, err := user.ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the API server limits requests itself
	config.WarningHandler = rest.NewWarningWriter(plain.Writer(os.Stderr), rest.WarningWriterOptions{Deduplicate: true})
	return kubernetes.NewForConfig(config)
}

func newCommand(streams genericiooptions.IOStreams, connect connectFunc) *cobra.Command {
	// All that a command prints passes through these writers.
	terminal := streams.Out
	streams.Out, streams.ErrOut = plain.Writer(streams.Out), plain.Writer(streams.ErrOut)
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	o := &options{IOStreams: streams, config: clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), connect: connect,
		width: func() int { return terminalWidth(terminal) }}
	get := o.newGet()
	root := &cobra.Command{
		Use: "kubectl-gpu",
		Example: `  # Why the pod train waits for its GPU
  kubectl gpu explain train`,
		Short: "The holders of GPUs, free devices, and the reason why a claim does not fit",
		Annotations: map[string]string{
			cobra.CommandDisplayNameAnnotation: "kubectl gpu",
		},
		Version:       version.Get().GitVersion,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          get.RunE,
	}
	o.usedFlag(root.Flags())
	o.rowFlags(root.Flags())
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags := root.PersistentFlags()
	// The flags of kubectl. Those of cli-runtime would link kustomize, and with it the
	// package plugin, which keeps the linker from dropping code.
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(overrides, flags, names)
	flags.StringVar(&o.driver, "driver-name", v1alpha1.DriverName, "name of the driver in the cluster")
	flags.StringVar(&o.driverNamespace, "driver-namespace", "", "namespace of the driver (default: the one that its admission policies name)")
	flags.StringVarP(&o.output, "output", "o", "", "output format: "+formats+" (default: a table)")
	root.AddCommand(get, o.newWho(), o.newFree(), o.newExplain(), o.newTopo(), o.newUsage(), o.newPlan(), o.newSysdump(), o.newUI(), o.newDoctor())
	root.AddCommand(o.newCordon(), o.newUncordon(), o.newDrain(), o.newRepaired(), o.newRoom())
	root.CompletionOptions.HiddenDefaultCmd = true // kubectl completes by kubectl_complete-gpu
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return o.checkOutput() }
	return root
}

// reader reads the objects of a cluster.
type reader struct {
	client kubernetes.Interface
	// namespace is the one of the user's context, or of the flag.
	namespace, driver string
}

// dial returns a reader of the cluster that the flags name.
func (o *options) dial() (reader, error) {
	client, err := o.connect(o.config)
	if err != nil {
		return reader{}, err
	}
	namespace, _, err := o.config.Namespace()
	return reader{client, namespace, o.driver}, err
}

// readWithClaims reads the cluster. Claims are always required.
func (r reader) readWithClaims(ctx context.Context, required ...doctor.List) (*rows.Cluster, error) {
	objects, refused, err := lists.Objects(ctx, r.client, r.namespace, append(required, doctor.Claims)...)
	if err != nil {
		return nil, err
	}
	return rows.New(objects, r.driver, refused), nil
}

// view is the cluster as a command has read it.
type view struct {
	*rows.Cluster
	reader
	// pods are the driver's pods; nil before [options.addAgents].
	pods *doctor.Cluster
}

// readWithSlices reads the cluster, and prints the rights to lists that the user lacks. Slices and
// claims are always required.
func (o *options) readWithSlices(ctx context.Context, required ...doctor.List) (*view, error) {
	r, err := o.dial()
	if err != nil {
		return nil, err
	}
	cluster, err := r.readWithClaims(ctx, append(required, doctor.Slices)...)
	if err != nil {
		return nil, err
	}
	for _, sentence := range cluster.Sentences() {
		fmt.Fprintln(o.ErrOut, sentence) //nolint:errcheck // there is no other place to say so
	}
	o.partial = cluster.IsPartial()
	return &view{Cluster: cluster, reader: r}, nil
}
