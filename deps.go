//go:build deps

package deps
import (
_ "k8s.io/api/resource/v1"
_ "k8s.io/client-go/kubernetes"
_ "k8s.io/dynamic-resource-allocation/kubeletplugin"
_ "k8s.io/dynamic-resource-allocation/structured"
_ "github.com/NVIDIA/go-nvml/pkg/nvml"
_ "github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
_ "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook"
_ "tags.cncf.io/container-device-interface/pkg/cdi"
_ "pgregory.net/rapid"
_ "github.com/google/go-cmp/cmp"
_ "github.com/spf13/cobra"
_ "github.com/prometheus/client_golang/prometheus/promhttp"
_ "github.com/prometheus/client_golang/prometheus/testutil"
_ "sigs.k8s.io/yaml"
_ "golang.org/x/sys/unix"
_ "k8s.io/kubelet/pkg/apis/dra/v1"
_ "k8s.io/client-go/kubernetes/fake"
_ "golang.org/x/sync/errgroup"
_ "k8s.io/utils/ptr"
_ "k8s.io/component-base/cli"
)
