package journal

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/engine/filestate"
	"github.com/drover-dev/drover/agent/host/fake"
	"github.com/drover-dev/drover/agent/host/fs"
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
	const planJSON = `"plan":"e30=","maxFailures":6,"probePeriod":7,"unsure":true`
	tests := map[string]struct {
		value any
		want  string
	}{
		"entry": {
			Entry{Kind: KindBegin, Time: at, Begin: &id, DeliveredPlan: plan, Unconfirmed: true,
				Attempts: map[string]LastAttempt{"c": {Number: 1, Time: at}},
				Index:    1, Name: "n", RunDir: "r", ExitCode: 2, TimedOut: true, Saved: true, Output: []byte("o"), Backup: &backup, Result: result},
			`{"kind":"begin","time":"2026-01-02T03:04:05Z","begin":{` + idJSON + `},` + planJSON +
				`,"attempts":{"c":{"number":1,"succeeded":false,"time":"2026-01-02T03:04:05Z"}},"index":1,"name":"n","spool":"r","exit":2,` +
				`"late":true,"saved":true,"output":"bw==","was":` + backupJSON + `,` + resultJSON + `}`,
		},
		"record": {
			Record{AttemptID: id, DeliveredPlan: plan, Unconfirmed: true, Started: at, Interrupted: 1, Paused: true, FilesPlaced: 2, FilesDone: true,
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

// TestJournalOfAnOlderAgent reads what agents leave that journal an attempt while they ask the source.
func TestJournalOfAnOlderAgent(t *testing.T) {
	const before = `{"kind":"begin","begin":{"checksum":"a","attempt":1}}` + "\n" + `{"kind":"end","succeeded":true}` + "\n"
	const unconfirmed = before + `{"kind":"begin","begin":{"checksum":"b","attempt":4},"unsure":true}` + "\n"
	tests := map[string]struct {
		raw         string
		checksum    string
		unconfirmed bool
		number      int
	}{
		"not confirmed":                {unconfirmed, "b", true, 4},
		"not confirmed, and prepared":  {unconfirmed + `{"kind":"start"}` + "\n", "b", true, 4},
		"confirmed by what came of it": {unconfirmed + `{"kind":"start"}` + "\n" + `{"kind":"done"}` + "\n", "b", false, 4},
		"taken back":                   {unconfirmed + `{"kind":"void"}` + "\n", "a", false, 0},
		"the line about it is cut off": {before + `{"kind":"begin","begin":{"checksum":"b"`, "a", false, 0},
		"another attempt came after it": {unconfirmed + `{"kind":"void"}` + "\n" + `{"kind":"begin","begin":{"checksum":"b","attempt":5}}` +
			"\n", "b", false, 5},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			j, err := Open(fake.New(), "/journal", []byte(test.raw))
			if err != nil {
				t.Fatal(err)
			}
			r, attempts := j.State()
			if r.Checksum != test.checksum || r.Unconfirmed != test.unconfirmed || attempts["b"].Number != test.number {
				t.Errorf("got %+v, %+v", r, attempts)
			}
		})
	}
}
