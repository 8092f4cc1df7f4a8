// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// fileMutants returns the mutants of the packages that write files on the node:
// records, the agent's directory, CDI specs.
func fileMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/store/fs.go",
			old:    `return writeFile(path, data, (*os.File).Sync)`,
			new:    `return writeFile(path, data, func(*os.File) error { return nil })`,
			notice: "after a power failure a GPU keeps a MIG mode that has no record",
		},
		{
			file:   "pkg/store/fs.go",
			old:    `		err = sync(f)`,
			new:    `		_ = sync(f)`,
			notice: "a record that was not written counts as saved",
		},
		{
			file:   "pkg/store/fs.go",
			old:    `return errors.Join(err, f.Close())`,
			new:    `_ = f.Close(); return err`,
			notice: "a full disk that is reported at close leaves an empty record",
			excuse: "no file system of a test fails at close: it takes NFS or a quota",
		},
		{
			file:   "pkg/store/envelope.go",
			old:    `want, got := string(fields[2]), checksum(payload); want != got`,
			new:    `want, got := string(fields[2]), checksum(payload); want == "" && got == ""`,
			notice: "a damaged record is trusted, and the steps in it are undone",
		},
		{
			file:   "pkg/store/envelope.go",
			old:    `version > formatVersion {`,
			new:    `version > formatVersion+1 {`,
			notice: "a record of a newer release is moved to quarantine after a downgrade",
		},
		{
			file:   "pkg/store/store.go",
			old:    `return time.Since(file.ModTime()) >= staleAfter`,
			new:    `return true`,
			notice: "a starting agent removes the file that another agent is writing",
		},
		{
			file:   "pkg/store/store.go",
			old:    `return file.Size() == 0 && file.Mode().IsRegular()`,
			new:    `return false`,
			notice: "empty records after a power failure are reported as damaged",
		},
		{
			file:   "pkg/store/store.go",
			old:    "	err = s.fs.WriteNew(tmp, encode(payload))\n	if err == nil {\n		err = s.fs.Rename(tmp, path)",
			new:    "	tmp = path\n	err = s.fs.WriteNew(tmp, encode(payload))\n	if err == nil {\n		err = s.fs.Rename(tmp, path)",
			notice: "an agent that is killed while it writes replaces a complete record by half a record",
		},
		{
			file:   "pkg/store/store.go",
			old:    `if rmErr := s.fs.Remove(tmp); rmErr != nil`,
			new:    `if rmErr := error(nil); rmErr != nil`,
			notice: "failed writes use up the rest of a full disk",
		},
		{
			file:   "pkg/store/store.go",
			old:    `if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {`,
			new:    `if _, err := os.Lstat(aside); err == nil || errors.Is(err, fs.ErrNotExist) {`,
			notice: "the second damaged record of a claim overwrites the first in quarantine",
		},
		{
			file:   "pkg/store/remove.go",
			old:    `filepath.Join(s.dir, quarantineDir): func(string) bool { return true },`,
			new:    `filepath.Join(s.dir, quarantineDir): func(string) bool { return false },`,
			notice: "uninstalling removes damaged records before an administrator has read them",
		},
		{
			file:   "pkg/folder/lock.go",
			old:    "	if ok, err = l.isCurrent(); err != nil {\n		return err\n	}\n	if !ok {",
			new:    "	if ok, err = l.isCurrent(); err != nil {\n		return err\n	}\n	if false {",
			notice: "two agents of a rolling update lock different directories, and both change GPUs",
		},
		{
			file:   "pkg/folder/lock.go",
			old:    "	// The kernel releases the shared lock before it takes the exclusive one.\n	return l.isCurrent()",
			new:    "	return true, nil",
			notice: "an agent that ends removes the directory of the agent that has just started",
		},
		{
			file:   "pkg/folder/lock.go",
			old:    `how|unix.LOCK_NB`,
			new:    `how&^unix.LOCK_NB`,
			notice: "an agent that ends waits for the other agent until the kubelet kills it",
			hangs:  20 * time.Second,
		},
		{
			file:   "pkg/folder/remove.go",
			old:    `unix.ENOTEMPTY, `,
			new:    ``,
			notice: "an agent that keeps a user's file ends with an error",
		},
		{
			file:   "pkg/home/home.go",
			old:    `{modesDir, &h.MIGModes, store.Disk{}},`,
			new:    `{modesDir, &h.MIGModes, store.Unsynced{}},`,
			notice: "after a power failure a GPU keeps a MIG mode that has no record",
		},
		{
			file:   "pkg/home/home.go",
			old:    `if empty, err := records.Empty(); err != nil || !empty {`,
			new:    `if empty, err := records.Empty(); err != nil && !empty {`,
			notice: "an agent that ends while claims are prepared removes their records",
		},
		{
			file:   "pkg/home/home.go",
			old:    `if needed, err := needed(); err != nil || needed {`,
			new:    `if needed, err := needed(); err != nil && needed {`,
			notice: "an agent that ends forgets claims whose records were lost",
		},
		{
			file:   "pkg/home/hook.go",
			old:    `if !info.Mode().IsRegular() || info.Mode().Perm() != 0o755 {`,
			new:    `if !info.Mode().IsRegular() {`,
			notice: "a hook that cannot run stays, and no container starts",
		},
		{
			file:   "pkg/home/hook.go",
			old:    `err = tmp.Chmod(0o755)`,
			new:    `err = nil`,
			notice: "the runtime may not run the hook, and no container starts",
		},
		{
			file:   "pkg/cdi/spec.go",
			old:    `filepath.Clean(node) != node || !strings.HasPrefix(node, "/dev/")`,
			new:    `!strings.HasPrefix(node, "/dev/")`,
			notice: "a device node outside /dev is added to a container",
		},
		{
			file:   "pkg/cdi/spec.go",
			old:    `options = []string{"rw", "nosuid", "nodev", "noexec", "rbind", "rprivate"}`,
			new:    `options = []string{"rw", "rbind", "rprivate"}`,
			notice: "a tenant can put device nodes and programs into the directory of the MPS daemon",
		},
		{
			file:   "pkg/cdi/spec.go",
			old:    `strings.ContainsAny(env, "\x00\n")`,
			new:    `strings.ContainsAny(env, "\x00")`,
			notice: "a value with a line break sets further variables of a container",
		},
		{
			file:   "pkg/cdi/writer.go",
			old:    "	tmp := path + tmpSuffix\n	err := os.WriteFile",
			new:    "	tmp := path\n	err := os.WriteFile",
			notice: "a runtime that reads while the spec is written starts a container without its GPU",
		},
		{
			file:   "pkg/cdi/writer.go",
			old:    `strings.TrimSuffix(e.Name(), tmpSuffix), w.prefix())`,
			new:    `e.Name(), w.prefix())`,
			notice: "specs that a crash left half written stay forever",
		},
		{
			file:   "pkg/cdi/writer.go",
			old:    `if ours && isSpec && validUID.MatchString(uid) {`,
			new:    `if (ours || isSpec) && validUID.MatchString(uid) {`,
			notice: "a CDI spec of another driver counts as a claim of this driver",
		},
	}
}
