package run

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// An agent sees progress when the shim writes it, and reads nothing meanwhile.
func TestWatchProgress(t *testing.T) {
	d := runDir(t.TempDir())
	write := func(text string) {
		if err := os.WriteFile(d.path(progressFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("7\n")
	reported := make(chan int64, 10)
	stop := d.watchProgress(func(bytes int64) { reported <- bytes })
	for _, want := range []int64{7, 12, 100} {
		write(strconv.FormatInt(want, 10) + "\n")
		if got := <-reported; got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	stop()
	write("200\n")
	if len(reported) > 0 {
		t.Errorf("got %d after the end", <-reported)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{"in a unit": "u", "below": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A busy machine may be late to count the first output, and counts again a second later at the earliest.
			counted := filepath.Join(t.TempDir(), "counted")
			m, _, command := inUnit(t, "printf 12345; while [ ! -e "+counted+" ]; do sleep 0.05; done; sleep 1.2; printf 67890; sleep 0.3")
			command.Unit = unit
			var reported []int64
			command.Progress = func(bytes int64) {
				if reported = append(reported, bytes); len(reported) > 1 {
					return
				}
				if err := os.WriteFile(counted, nil, 0o600); err != nil {
					t.Error(err)
				}
			}
			if unit == "" {
				m.units = nil
			}
			if _, err := m.Run(t.Context(), command); err != nil {
				t.Fatal(err)
			}
			if len(reported) == 0 || reported[len(reported)-1] != 10 {
				t.Errorf("reported %v", reported)
			}
		})
	}
}
