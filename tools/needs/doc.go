// SPDX-License-Identifier: Apache-2.0

// Package needs tests needs.sh, which checks what the Makefile needs of a machine.
package needs
