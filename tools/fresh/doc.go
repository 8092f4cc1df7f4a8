// SPDX-License-Identifier: Apache-2.0

// Package fresh tests the script that runs a command as on a fresh machine.
package fresh
