// SPDX-License-Identifier: Apache-2.0

// Command dynamic stands in for our programs, which use the C library.
package main

// #include <stdlib.h>
import "C"

func main() { C.abs(-1) }
