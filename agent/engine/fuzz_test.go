package engine

import (
	"bytes"
	"encoding/json"
	"testing"
)

func FuzzAttempts(f *testing.F) {
	f.Add([]byte(`{"source":"hub","checksum":"a","attempt":1,"try":1,"started":"2026-01-02T03:04:05Z","succeeded":true}` + "\n" + `{"checksum":"b"`))
	f.Add([]byte("\n\nnull\n[]\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		attempts := decodeAttempts(raw)
		if len(attempts) > bytes.Count(raw, []byte("\n"))+1 {
			t.Fatalf("%d attempts come out", len(attempts))
		}
		var kept []byte
		for _, a := range attempts {
			line, err := json.Marshal(a)
			if err != nil {
				t.Skip("a time that JSON cannot hold")
			}
			kept = append(append(kept, line...), '\n')
		}
		if again := decodeAttempts(kept); len(again) != len(attempts) {
			t.Fatalf("%d of %d attempts are left", len(again), len(attempts))
		}
	})
}
