package host

import (
	"os"
	"testing"
)

// FuzzSpool reads what a power cut or a full disk may have left of a spool: nothing of it may be taken for the end of a run unless it
// tells when that was, and an order is taken once.
func FuzzSpool(f *testing.F) {
	f.Add([]byte(`{"exitCode":3,"ended":"2026-11-21T10:00:00Z","stdout":"YQ=="}`), []byte(`{"path":"/bin/sh","args":["-c","true"],"timeout":1}`))
	f.Add([]byte(`{"exitCode":0}`), []byte(`{`))
	f.Fuzz(func(t *testing.T, result, order []byte) {
		s := spool(t.TempDir())
		for name, raw := range map[string][]byte{spoolResult: result, spoolSpec: order} {
			if err := os.WriteFile(s.path(name), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if found, ok := s.read(spoolResult); ok && found.Ended.IsZero() {
			t.Errorf("a result without an end: %+v", found)
		}
		if told, ok, _ := s.told(); !ok && told.ExitCode != -1 {
			t.Errorf("no result, and exit code %d", told.ExitCode)
		}
		taken, err := s.take()
		if err != nil {
			return
		}
		_ = taken.command()
		if _, err := s.take(); !os.IsNotExist(err) {
			t.Errorf("taken twice: %v", err)
		}
	})
}
