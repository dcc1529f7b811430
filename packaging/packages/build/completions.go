package build

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
)

// completions adds the completions of shells for a program. The binary of this machine's architecture prints them.
func (s *stage) completions(name, binary string) error {
	zsh := map[string]string{Deb: "/usr/share/zsh/vendor-completions/_", RPM: "/usr/share/zsh/site-functions/_"}[s.format]
	for _, shell := range []struct{ name, to string }{
		{"bash", "/usr/share/bash-completion/completions/" + name},
		{"zsh", zsh + name},
		{"fish", "/usr/share/fish/vendor_completions.d/" + name + ".fish"},
	} {
		text, err := completion(binary, shell.name)
		if err != nil {
			return err
		}
		if err := s.add(shell.to, "", 0o644, text); err != nil {
			return err
		}
	}
	return nil
}

func completion(binary, shell string) ([]byte, error) {
	path, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(path, "completion", shell)
	// Defaults in the help come from the environment.
	cmd.Env = []string{"HOME=/root", "PATH=/usr/bin:/bin"}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("running %s completion %s: %w: %s", binary, shell, err, bytes.TrimSpace(stderr.Bytes()))
	}
	if stdout.Len() == 0 {
		return nil, fmt.Errorf("running %s completion %s: no output", binary, shell)
	}
	return stdout.Bytes(), nil
}
