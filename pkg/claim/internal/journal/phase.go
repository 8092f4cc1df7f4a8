// SPDX-License-Identifier: Apache-2.0

package journal

// Phase is the place of a claim in its life. It follows from the files on the disk
// and is stored nowhere.
type Phase string

// The phases.
const (
	// Absent: there is no record.
	Absent Phase = "Absent"
	// Preparing: some steps of the plan may have been done.
	Preparing Phase = "Preparing"
	// Prepared: all steps are done; containers may run.
	Prepared Phase = "Prepared"
	// Unpreparing: some steps may have been undone.
	Unpreparing Phase = "Unpreparing"
	// Stale: the record was written before the last reboot.
	Stale Phase = "Stale"
	// Unrecorded: there is no readable record, but a CDI spec.
	Unrecorded Phase = "Unrecorded"
)

// Phase returns the phase of a record, nil for none, in a boot of the machine.
func (r *Record) Phase(bootID string) Phase {
	switch {
	case r == nil:
		return Absent
	case r.BootID != bootID:
		return Stale
	case r.Unpreparing:
		return Unpreparing
	case r.IsDone():
		return Prepared
	default:
		return Preparing
	}
}
