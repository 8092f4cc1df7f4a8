// SPDX-License-Identifier: Apache-2.0

// Package viewers admits users to the pages of the agent that name other tenants. A user
// proves the right to read them by a token of one service account, which has no other
// purpose. The API server reviews the tokens, and this package limits its reviews.
package viewers
