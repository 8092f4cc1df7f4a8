// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
)

// socketPatience is the timeout of a call to the plugin's own sockets.
const socketPatience = 2 * time.Second

// Sockets are the paths of a plugin's sockets.
type Sockets struct {
	network            Network
	service, registrar string
}

// Sockets returns the paths at which upstream creates the sockets of the driver.
func (p Place) Sockets() Sockets {
	if p.PodUID == "" {
		return Sockets{p.Network, filepath.Join(p.DataDir, "dra.sock"), filepath.Join(p.RegistryDir, p.DriverName+"-reg.sock")}
	}
	own := Instance(p.PodUID)
	return Sockets{
		p.Network,
		filepath.Join(p.DataDir, "dra-"+string(own)+".sock"),
		filepath.Join(p.RegistryDir, kubeletplugin.RollingUpdateRegistrarSocketFile(p.RegistryDir, p.DriverName, own)),
	}
}

// Check returns an error unless the plugin answers a call of the kubelet on each socket.
func (s Sockets) Check() error {
	ctx, cancel := context.WithTimeout(context.Background(), socketPatience)
	defer cancel()
	return errors.Join(callSocket(ctx, s.network, s.service, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := draapi.NewDRAPluginClient(conn).NodePrepareResources(ctx, &draapi.NodePrepareResourcesRequest{})
		return err
	}), callSocket(ctx, s.network, s.registrar, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{})
		return err
	}))
}

// again is the key of gRPC metadata by which the plugin knows a call of [Sockets.PrepareAgain].
const again = "gpu-dra-driver-again"

// IsAgain reports whether a call comes from [Sockets.PrepareAgain], and not from the kubelet.
func IsAgain(ctx context.Context) bool { return len(metadata.ValueFromIncomingContext(ctx, again)) > 0 }

// PrepareAgain repairs a prepared claim by the call that the kubelet would repeat.
func (s Sockets) PrepareAgain(ctx context.Context, c claim.Ref) error {
	ctx = metadata.AppendToOutgoingContext(ctx, again, "true")
	var response *draapi.NodePrepareResourcesResponse
	var refusal error
	err := callSocket(ctx, s.network, s.service, func(ctx context.Context, conn *grpc.ClientConn) error {
		response, refusal = draapi.NewDRAPluginClient(conn).NodePrepareResources(ctx, &draapi.NodePrepareResourcesRequest{
			Claims: []*draapi.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}},
		})
		return nil
	})
	if err := errors.Join(err, refusal); err != nil {
		return err
	}
	if text := response.Claims[string(c.UID)].GetError(); text != "" {
		return errors.New(text)
	}
	return nil
}

// Connect returns a client of the socket at a path. A nil network is the machine's.
func Connect(network Network, socket string) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if network == nil {
		return grpc.NewClient("unix:"+socket, options...)
	}
	return grpc.NewClient("passthrough:///"+socket, append(options, grpc.WithContextDialer(network.Dial))...)
}

func callSocket(ctx context.Context, network Network, socket string, call func(context.Context, *grpc.ClientConn) error) error {
	conn, err := Connect(network, socket)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the call has ended
	if err := call(ctx, conn); err != nil {
		return fmt.Errorf("socket %s does not answer, restart the agent: %w", socket, err)
	}
	return nil
}
