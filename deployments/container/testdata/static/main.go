// SPDX-License-Identifier: Apache-2.0

// Command static stands in for nvidia-cdi-hook.
package main

func main() {}
