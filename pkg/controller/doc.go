// Package controller keeps what a node publishes in step with its GPUs: it
// looks at the hardware, has package catalog describe what it saw, and hands
// the result to upstream's ResourceSlice controller. It looks once, then again
// on hardware events, and with growing pauses for as long as something is
// missing; it does not poll a node where all is well.
//
// It is also where the rest of the driver asks what is known of a GPU.
// Preparing claims is package claim's, speaking to the kubelet package
// plugin's.
package controller
