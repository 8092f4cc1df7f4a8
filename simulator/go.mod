// Module simulator is a simulated NVIDIA driver for programs without GPUs. It is apart from
// the driver's module because it is of use without Kubernetes.
module github.com/gpu-dra/gpu-dra-driver/simulator

go 1.26.0

require (
	github.com/NVIDIA/go-nvml v0.13.4-0
	github.com/google/go-cmp v0.7.0
	github.com/moby/sys/mountinfo v0.7.2
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.10
	golang.org/x/sync v0.23.0
	golang.org/x/sys v0.48.0
	k8s.io/utils v0.0.0-20260626114624-be93311217bd
	pgregory.net/rapid v1.3.0
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
)
