// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// emptyLibrary is a shared object with a name and no symbol. ldconfig and the container
// toolkit read its name, and a program that loads it finds no function.
func emptyLibrary(platform, soname string) string {
	machine := elf.EM_X86_64
	if platform == "aarch64" {
		machine = elf.EM_AARCH64
	}
	// The file: header, two program headers, the dynamic section, the strings
	// of names, a table of no symbols with its hash table, three section headers.
	names := "\x00" + soname + "\x00.dynamic\x00.dynstr\x00"
	const headerSize, programSize, sectionSize, dynamicAt = 64, 56, 64, 64 + 2*56
	dynamic := []elf.Dyn64{
		{Tag: int64(elf.DT_SONAME), Val: 1},
		{Tag: int64(elf.DT_STRTAB)},
		{Tag: int64(elf.DT_STRSZ), Val: uint64(len(names))},
		{Tag: int64(elf.DT_SYMTAB)},
		{Tag: int64(elf.DT_SYMENT), Val: elf.Sym64Size},
		{Tag: int64(elf.DT_HASH)},
		{Tag: int64(elf.DT_NULL)},
	}
	dynamicSize := uint64(16 * len(dynamic))
	namesAt := dynamicAt + dynamicSize
	dynamic[1].Val = namesAt
	// The first symbol of a table is always empty. The hash table has one chain, for it.
	symbols, hash := elf.Sym64{}, [4]uint32{1, 1}
	symbolsAt := (namesAt + uint64(len(names)) + 7) &^ 7
	hashAt := symbolsAt + elf.Sym64Size
	dynamic[3].Val, dynamic[5].Val = symbolsAt, hashAt
	sectionsAt := hashAt + uint64(binary.Size(hash))
	size := sectionsAt + 3*sectionSize

	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: headerSize, Shoff: sectionsAt, Ehsize: headerSize,
		Phentsize: programSize, Phnum: 2, Shentsize: sectionSize, Shnum: 3, Shstrndx: 2,
	}
	programs := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Filesz: size, Memsz: size, Align: 0x1000},
		{Type: uint32(elf.PT_DYNAMIC), Flags: uint32(elf.PF_R), Off: dynamicAt, Vaddr: dynamicAt, Paddr: dynamicAt, Filesz: dynamicSize, Memsz: dynamicSize, Align: 8},
	}
	nameOf := func(section string) uint32 { return uint32(bytes.Index([]byte(names), []byte(section))) }
	sections := []elf.Section64{
		{},
		{Name: nameOf(".dynamic"), Type: uint32(elf.SHT_DYNAMIC), Flags: uint64(elf.SHF_ALLOC), Addr: dynamicAt, Off: dynamicAt, Size: dynamicSize, Link: 2, Addralign: 8, Entsize: 16},
		{Name: nameOf(".dynstr"), Type: uint32(elf.SHT_STRTAB), Flags: uint64(elf.SHF_ALLOC), Addr: namesAt, Off: namesAt, Size: uint64(len(names)), Addralign: 1},
	}
	var file bytes.Buffer
	for _, part := range []any{header, programs, dynamic} {
		// A bytes.Buffer takes everything, and the parts are of fixed size.
		_ = binary.Write(&file, binary.LittleEndian, part)
	}
	file.WriteString(names)
	file.Write(make([]byte, int(symbolsAt)-file.Len()))
	for _, part := range []any{symbols, hash, sections} {
		_ = binary.Write(&file, binary.LittleEndian, part)
	}
	return file.String()
}
