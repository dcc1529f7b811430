package journal

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/drover-dev/drover/agent/testenv/fake"
)

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"kind":"begin","begin":{"checksum":"a","attempt":1},"attempts":{"a":{"number":1}}}` + "\n" +
		`{"kind":"files"}` + "\n" + `{"kind":"done","name":"x","saved":true,"output":"YQ=="}` + "\n" + `{"kind":"end","succeeded":true}` + "\n{"))
	f.Add([]byte(`{"kind":"state","record":{"checksum":"a","kept":{"0":{"copy":"/x"}}},"attempts":{"a":{"number":1}}}` + "\n" +
		`{"kind":"begin","begin":{"checksum":"c","revision":2},"plan":"e30="}` + "\n" +
		`{"kind":"file","index":3,"was":{"link":"x"}}` + "\n" +
		`{"kind":"start","index":-1}` + "\n" + `{"kind":"undo","message":"m"}` + "\n" + `{"kind":"undone"}` + "\n" +
		`{"kind":"reported"}` + "\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h := fake.New()
		j, _ := Open(h, "/journal", raw)
		if err := j.Append(Entry{Kind: KindBegin, Begin: &AttemptID{Checksum: "b", Attempt: 1}}); err != nil {
			t.Fatal(err)
		}
		if err := j.Append(Entry{Kind: KindDone, Name: "x", Saved: true}); err != nil {
			t.Fatal(err)
		}
		again, err := Open(h, "/journal", h.Files()["/journal"].Content)
		if err != nil || again.record.InstructionsDone != 1 || again.record.Checksum != "b" {
			t.Fatalf("%+v, %v", again.record, err)
		}
	})
}

func FuzzAttempts(f *testing.F) {
	f.Add([]byte(`{"source":"hub","checksum":"a","attempt":1,"try":1,"started":"2026-01-02T03:04:05Z","succeeded":true}` + "\n" +
		`{"checksum":"b"`))
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
