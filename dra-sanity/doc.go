// SPDX-License-Identifier: Apache-2.0

// Command dra-sanity holds a DRA driver to what the kubelet and the API promise.
//
// It is a kubelet, and with --exec an API server as well, in one process: it registers the driver, allocates devices
// from the ResourceSlices that it publishes, and prepares and unprepares claims, in the orders and at the moments
// that a real node brings about. It needs no cluster, no container runtime and no root, unless the driver does.
//
//	scenarios  what a driver must do, each with an id; its steps are in publish, prepare and death
//	driver     the program under test, and its death
//	kubelet    registration and calls by gRPC
//	apiserver  objects in memory, with watches, conflicts and outages
//	report     text, JSON and JUnit
package main
