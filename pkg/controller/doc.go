// Package controller keeps what a node publishes in step with its GPUs: it
// looks at the hardware, has package catalog describe what it saw, and hands
// the result to upstream's ResourceSlice controller. It scans once, then again
// on hardware events, often while something is missing or wrong, and rarely while
// all is well, because not every change has an event; see [pace].
//
// It also keeps the faults of GPUs: what marks a GPU and what ends that is decided
// by pure functions ([causeOf], [examine], [repair]), the inventory holds it, and a
// record for each GPU keeps it beyond the end of the agent ([faultRecords]).
//
// It is also where the rest of the driver asks what is known of a GPU.
// Preparing claims is package claim's, speaking to the kubelet package
// plugin's.
package controller
