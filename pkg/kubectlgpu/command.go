// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
)

// options are the flags of all commands.
type options struct {
	genericiooptions.IOStreams
	// config is the user's kubeconfig with the flags that override it.
	config  clientcmd.ClientConfig
	connect connectFunc
	driver  string
	output  string
}

// connectFunc returns a client of the cluster that the flags name.
type connectFunc func(clientcmd.ClientConfig) (kubernetes.Interface, error)

// New returns the command "kubectl gpu".
func New(streams genericiooptions.IOStreams) *cobra.Command { return newCommand(streams, connect) }

func connect(user clientcmd.ClientConfig) (kubernetes.Interface, error) {
	config, err := user.ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the API server limits requests itself
	return kubernetes.NewForConfig(config)
}

func newCommand(streams genericiooptions.IOStreams, connect connectFunc) *cobra.Command {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	o := &options{IOStreams: streams, config: clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), connect: connect}
	get := o.newGet()
	root := &cobra.Command{
		Use:   "kubectl-gpu",
		Short: "The holders of GPUs, free devices, and the reason why a claim does not fit",
		Annotations: map[string]string{
			cobra.CommandDisplayNameAnnotation: "kubectl gpu",
		},
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          get.RunE,
	}
	flags := root.PersistentFlags()
	// The flags of kubectl. Those of cli-runtime would link kustomize, and with it the
	// package plugin, which keeps the linker from dropping code.
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.StringVar(&o.driver, "driver-name", v1alpha1.DriverName, "name of the driver in the cluster")
	flags.StringVarP(&o.output, "output", "o", "", "output format: wide, json or yaml (default: a table)")
	root.AddCommand(get, o.newWho(), o.newFree(), o.newExplain(), o.newTopo(), o.newUsage())
	return root
}

// view is the objects of the cluster that a command has read.
type view struct {
	*fleet.Fleet
	objects fleet.Objects
	client  kubernetes.Interface
	// namespace is the one of the user's context, or of the flag.
	namespace string
}

// read reads the cluster. Slices and claims are always required; it prints the rights to other
// lists that the user lacks.
func (o *options) read(ctx context.Context, required ...string) (*view, error) {
	client, err := o.connect(o.config)
	if err != nil {
		return nil, err
	}
	namespace, _, err := o.config.Namespace()
	if err != nil {
		return nil, err
	}
	objects, refused, err := readObjects(ctx, client, namespace, append(required, sliceList, claimList)...)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		fmt.Fprintln(o.ErrOut, refused[name]) //nolint:errcheck // there is no other place to say so
	}
	return &view{fleet.New(objects, fleet.Options{Driver: o.driver, Features: fleet.FeaturesOf(objects)}), objects, client, namespace}, nil
}

// nodesNamed returns the named nodes, or all of them without names.
func (v *view) nodesNamed(names []string) []fleet.Node {
	return slices.DeleteFunc(v.Nodes(), func(n fleet.Node) bool { return len(names) > 0 && !slices.Contains(names, n.Name) })
}
