// SPDX-License-Identifier: Apache-2.0

// Command library stands in for the simulated libnvidia-ml.so.1.
package main

import "C"

func main() {}
