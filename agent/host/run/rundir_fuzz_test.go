package run

import (
	"os"
	"testing"
)

// FuzzRunDir reads what a power cut or a full disk may have left of a run directory: no result counts unless it says when the program
// ended, and a spec is read once.
func FuzzRunDir(f *testing.F) {
	f.Add([]byte(`{"exitCode":3,"ended":"2026-11-21T10:00:00Z","stdout":"YQ=="}`),
		[]byte(`{"path":"/bin/sh","args":["-c","true"],"timeout":1}`))
	f.Add([]byte(`{"exitCode":0}`), []byte(`{`))
	f.Fuzz(func(t *testing.T, result, spec []byte) {
		d := runDir(t.TempDir())
		for name, raw := range map[string][]byte{resultFile: result, specFile: spec} {
			if err := os.WriteFile(d.path(name), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if found, ok := d.readResult(resultFile); ok && found.Ended.IsZero() {
			t.Errorf("a result without an end: %+v", found)
		}
		if result, ok, _ := d.result(); !ok && result.ExitCode != -1 {
			t.Errorf("no result, and exit code %d", result.ExitCode)
		}
		read, err := d.readSpec()
		if err != nil {
			return
		}
		_ = read.command()
		if _, err := d.readSpec(); !os.IsNotExist(err) {
			t.Errorf("read twice: %v", err)
		}
	})
}
