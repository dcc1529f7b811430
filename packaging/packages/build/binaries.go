package build

import (
	"debug/elf"
	"fmt"
	"path/filepath"
)

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// agentBinary and hubBinary are where the Makefile puts the binaries.
func (s *stage) agentBinary(arch string) string {
	return filepath.Join(s.Bin, "assets", "system-agent-"+arch)
}
func (s *stage) hubBinary(arch string) string { return filepath.Join(s.Bin, "linux-"+arch, "hub") }

// binary adds a program after a check that it is one of the architecture, and static, so that it runs on any distribution.
func (s *stage) binary(to, path, arch string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("bin: reading %s, which `make cross` builds: %w", path, err)
	}
	defer f.Close()
	if f.Machine != machines[arch] {
		return fmt.Errorf("bin: %s is a program for %s, not for %s", path, f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("bin: %s is not static; build it with CGO_ENABLED=0", path)
		}
	}
	// A link would be packaged as one.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return fmt.Errorf("bin: %w", err)
	}
	s.addPath(to, "", 0o755, path)
	s.programs = append(s.programs, path)
	return nil
}
