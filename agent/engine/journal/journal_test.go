package journal

import (
	"bytes"
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/engine/filestate"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/testenv/fake"
)

// TestFileFormat compares a line with every field, and a record with every field, with what agents have written since the first version.
func TestFileFormat(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	id := AttemptID{Checksum: "c", UID: "u", Revision: 1, Attempt: 2, Tries: 3, FailuresBefore: 4, SuccessesBefore: 5}
	plan := DeliveredPlan{Plan: []byte("{}"), MaxFailures: 6, ProbePeriod: 7}
	backup := filestate.Backup{Copy: "a", MovedTo: "b", Link: "c", Dir: true, Unsupported: true,
		Attrs: fs.Attributes{Mode: 8, UID: 9, GID: 10}}
	result := Result{Succeeded: true, Final: true, Canceled: true, Incomplete: true, RolledBack: true, Message: "m", Summary: "s"}
	const attrs = `"attrs":{"Mode":8,"UID":9,"GID":10}`
	const backupJSON = `{"copy":"a","aside":"b","link":"c","dir":true,"unknown":true,` + attrs + `}`
	const resultJSON = `"succeeded":true,"final":true,"canceled":true,"incomplete":true,"rolledBack":true,"message":"m","summary":"s"`
	const idJSON = `"checksum":"c","uid":"u","revision":1,"attempt":2,"tries":3,"failuresBefore":4,"successesBefore":5`
	const planJSON = `"plan":"e30=","maxFailures":6,"probePeriod":7`
	tests := map[string]struct {
		value any
		want  string
	}{
		"entry": {
			Entry{Kind: KindBegin, Time: at, Begin: &id, DeliveredPlan: plan,
				Attempts: map[string]LastAttempt{"c": {Number: 1, Time: at}},
				Index:    1, Name: "n", RunDir: "r", ExitCode: 2, TimedOut: true, Saved: true, Output: []byte("o"), Backup: &backup, Result: result},
			`{"kind":"begin","time":"2026-01-02T03:04:05Z","begin":{` + idJSON + `},` + planJSON +
				`,"attempts":{"c":{"number":1,"succeeded":false,"time":"2026-01-02T03:04:05Z"}},"index":1,"name":"n","spool":"r","exit":2,` +
				`"late":true,"saved":true,"output":"bw==","was":` + backupJSON + `,` + resultJSON + `}`,
		},
		"record": {
			Record{AttemptID: id, DeliveredPlan: plan, Started: at, Interrupted: 1, Paused: true, FilesPlaced: 2, FilesDone: true,
				Backups: map[int]filestate.Backup{0: backup}, InstructionsDone: 3, InstructionsStarted: 4, Outputs: map[string][]byte{"n": []byte("o")},
				Runs:        []InstructionRun{{Index: 1, Name: "n", Started: at, Ended: at, ExitCode: 2, TimedOut: true, RunDir: "r"}},
				RollingBack: true, FilesRestored: 5, Ended: at, Result: result, Reported: at},
			`{` + idJSON + `,` + planJSON + `,"started":"2026-01-02T03:04:05Z","interrupted":1,"paused":true,` +
				`"files":2,"filesDone":true,"kept":{"0":` +
				backupJSON + `},"done":3,"begun":4,"outputs":{"n":"bw=="},"runs":[{"index":1,"name":"n","started":"2026-01-02T03:04:05Z",` +
				`"ended":"2026-01-02T03:04:05Z","exitCode":2,"timedOut":true,"spool":"r"}],"undoing":true,"undone":5,"ended":"2026-01-02T03:04:05Z",` +
				resultJSON + `,"reported":"2026-01-02T03:04:05Z"}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(test.value)
			if diff := cmp.Diff(test.want, string(raw)); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

func TestLineThatIsCutOff(t *testing.T) {
	const whole = `{"kind":"begin","begin":{"checksum":"a","attempt":1}}` + "\n" + `{"kind":"end","succeeded":true}` + "\n"
	h := fake.New()
	j, err := Open(h, "/journal", []byte(whole+`{"kind":"begin","begin":{"checksum":"b"`))
	if r := j.Record(); err != nil || r.Checksum != "a" || !r.Succeeded || string(h.Files()["/journal"].Content) != whole {
		t.Errorf("got %+v, %v, and on disk %s", r, err, h.Files()["/journal"].Content)
	}
}

// TestFullDisk lets writes fail at every place and for every number of entries: whatever is written later, the file never has an entry
// without those before it, and in the end it says what the process knows.
func TestFullDisk(t *testing.T) {
	end, reported := []Entry{{Kind: KindEnd, Result: Result{Succeeded: true}}}, []Entry{{Kind: KindReported}}
	const count = 9
	for first := range count {
		for last := first; last < count; last++ {
			size := 100
			if last-first > 5 {
				size = CompactBytes / 3 // more than is remembered, and more than is kept
			}
			begin := func(checksum string) []Entry {
				return []Entry{{Kind: KindBegin, Begin: &AttemptID{Checksum: checksum, Attempt: 1},
					DeliveredPlan: DeliveredPlan{Plan: bytes.Repeat([]byte("p"), size)}}}
			}
			steps := [count][]Entry{begin("a"), end, reported, begin("b"), end, reported, begin("c"), {{Kind: KindFiles}}, end}
			h := fake.New()
			j, err := Open(h, "/journal", nil)
			if err != nil {
				t.Fatal(err)
			}
			known := Record{} // what the file may say
			for i, entries := range steps {
				full := i >= first && i <= last
				h.FailWith(func(op, path string) error { return map[bool]error{true: syscall.ENOSPC}[full] })
				if err := j.Append(entries...); (err != nil) != full {
					t.Fatalf("full from %d to %d: entry %d: %v", first, last, i, err)
				}
				if !full {
					known = j.Record()
				}
				checkFile(t, h, known)
			}
			h.FailWith(nil)
			if err := j.Flush(); err != nil {
				t.Fatal(err)
			}
			checkFile(t, h, j.Record())
			before := len(h.Files()["/journal"].Content)
			if err := j.Flush(); err != nil || len(h.Files()["/journal"].Content) != before {
				t.Errorf("a second flush wrote %d bytes, %v", len(h.Files()["/journal"].Content)-before, err)
			}
		}
	}
}

// checkFile compares a journal on disk with the record that it should hold.
func checkFile(t *testing.T, h *fake.Host, want Record) {
	t.Helper()
	got, err := Read(h.Files()["/journal"].Content)
	same := got.AttemptID == want.AttemptID && got.Ended.Equal(want.Ended) && got.Reported.Equal(want.Reported) &&
		got.FilesDone == want.FilesDone
	if plan := !got.Unreported() || bytes.Equal(got.Plan, want.Plan); err != nil || !same || !plan {
		t.Fatalf("the file says %+v %s %s, want %+v %s %s; %v", got.AttemptID, got.Ended, got.Reported, want.AttemptID, want.Ended,
			want.Reported, err)
	}
}
