// SPDX-License-Identifier: Apache-2.0

// Command static stands in for the probe, which uses no C library.
package main

func main() {}
