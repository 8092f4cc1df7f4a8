// SPDX-License-Identifier: Apache-2.0

// not_simulated is the answer of the functions that the simulator does not have.
int not_simulated(void);
