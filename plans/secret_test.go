package plans

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var applyTime = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func fullStatus() Status {
	return Status{
		AppliedChecksum: "aa", FailedChecksum: "bb", FailureCount: 2, SuccessCount: 3, LastApplyTime: applyTime,
		AppliedOutput: map[string][]byte{"install": []byte("done\n"), "silent": nil},
		FailedOutput:  map[string][]byte{"install": []byte("no space left\n")},
		PeriodicOutput: map[string]PeriodicOutput{"etcd-name": {Name: "etcd-name", Stdout: []byte("node-1"),
			Stderr: []byte{}, LastSuccessfulRunTime: FormatTime(applyTime)}},
		ProbeStatuses: map[string]ProbeStatus{"kubelet": {Healthy: true, SuccessCount: 1}, "etcd": {}},
		State:         StateFailed, Revision: 4,
		Progress:   &Progress{Checksum: "aa", Phase: PhasePulling, Total: 2, Name: "install", PulledBytes: 1, TotalBytes: 2},
		Checkpoint: &Checkpoint{Checksum: "aa", CompletedInstructions: 1, TotalInstructions: 2, ResumeState: StatePending, Paused: true},
		Agent:      &AgentStatus{Version: "v1.2.3", Generation: 1, Phase: UpgradeRolledBack, Message: "timed out"},
	}
}

func TestStatusGoesThereAndBack(t *testing.T) {
	data := SecretData{KeyPlan: []byte("{}"), "other": []byte("kept")}
	if err := fullStatus().WriteTo(data); err != nil {
		t.Fatal(err)
	}
	got, err := DecodeStatus(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullStatus(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	for key, want := range map[string]string{
		KeyFailureCount: "2", KeySuccessCount: "3", KeyPlanRevision: "4", KeyPlanState: "failed",
		KeyLastApplyTime:  "Wed Mar  4 05:06:07 UTC 2026",
		KeyProbeStatuses:  `{"etcd":{},"kubelet":{"healthy":true,"successCount":1}}`,
		KeyPlanCheckpoint: `{"checksum":"aa","completedInstructions":1,"totalInstructions":2,"resumeState":"pending","paused":true}`,
		"other":           "kept", KeyPlan: "{}",
	} {
		if diff := cmp.Diff(want, string(data[key])); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
	plain, err := decompress(data[KeyAppliedOutput])
	if err != nil || string(plain) != `{"install":"ZG9uZQo=","silent":null}` {
		t.Errorf("applied-output is %s, %v", plain, err)
	}
}

func TestWritingTheSameStatusChangesNoByte(t *testing.T) {
	data := SecretData{}
	if err := fullStatus().WriteTo(data); err != nil {
		t.Fatal(err)
	}
	// Another writer may have used another compression.
	zipped, err := compress([]byte(`{ "silent": null, "install": "ZG9uZQo=" }`))
	if err != nil {
		t.Fatal(err)
	}
	data[KeyAppliedOutput] = zipped
	before := maps.Clone(data)
	status, err := DecodeStatus(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := status.WriteTo(data); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, data); diff != "" {
		t.Error(diff)
	}
}

func TestZeroStatusWritesNothing(t *testing.T) {
	data := SecretData{}
	if err := (Status{}).WriteTo(data); err != nil {
		t.Fatal(err)
	}
	if len(data) != 0 {
		t.Errorf("wrote %v", data)
	}
}

func TestSuccessClearsFailure(t *testing.T) {
	data := SecretData{}
	if err := fullStatus().WriteTo(data); err != nil {
		t.Fatal(err)
	}
	success := Status{AppliedChecksum: "bb", SuccessCount: 1, State: StateSucceeded, Revision: 5}
	if err := success.WriteTo(data); err != nil {
		t.Fatal(err)
	}
	want := SecretData{
		KeyAppliedChecksum: []byte("bb"), KeyFailedChecksum: []byte{}, KeyFailureCount: []byte("0"), KeySuccessCount: []byte("1"),
		KeyLastApplyTime: []byte{}, KeyAppliedOutput: []byte{}, KeyFailedOutput: []byte{}, KeyAppliedPeriodicOutput: []byte{},
		KeyPlanState: []byte("succeeded"), KeyPlanRevision: []byte("5"),
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Error(diff)
	}
}

func TestAgentKeysAreWhatStatusWrites(t *testing.T) {
	data := SecretData{}
	if err := fullStatus().WriteTo(data); err != nil {
		t.Fatal(err)
	}
	for _, key := range AgentKeys() {
		if _, written := data[key]; !written {
			t.Errorf("%s is an agent's key and is not written", key)
		}
		delete(data, key)
	}
	if len(data) != 0 {
		t.Errorf("written and no agent's keys: %v", data)
	}
}

func TestDecodeStatusNamesTheKey(t *testing.T) {
	bomb, err := compress(bytes.Repeat([]byte{' '}, MaxValueBytes+1))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		key, value, err string
	}{
		"count":      {KeyFailureCount, "many", `decoding failure-count: "many" is not a decimal number`},
		"successes":  {KeySuccessCount, "1.5", `decoding success-count: "1.5" is not a decimal number`},
		"revision":   {KeyPlanRevision, "x", `decoding plan-revision: "x" is not a decimal number`},
		"time":       {KeyLastApplyTime, "2026-01-01", `decoding last-apply-time: "2026-01-01" is not a time in the form`},
		"not gzip":   {KeyAppliedOutput, "{}", `decoding applied-output: decompressing:`},
		"bomb":       {KeyFailedOutput, string(bomb), `decoding failed-output: decompressing: result exceeds 16777216 bytes`},
		"probes":     {KeyProbeStatuses, "[]", `decoding probe-statuses: json:`},
		"checkpoint": {KeyPlanCheckpoint, "1", `decoding plan-checkpoint: json:`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeStatus(SecretData{test.key: []byte(test.value)})
			checkError(t, err, test.err)
		})
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]time.Time{"": {}, "Wed Mar  4 05:06:07 UTC 2026": applyTime} {
		got, err := ParseTime(text)
		if err != nil || !got.Equal(want) || FormatTime(got) != text {
			t.Errorf("%q became %v, %v", text, got, err)
		}
	}
	// A zone that this machine does not know keeps its letters.
	foreign := "Wed Mar  4 05:06:07 AEST 2026"
	if got, err := ParseTime(foreign); err != nil || FormatTime(got) != foreign {
		t.Errorf("%q became %v, %v", foreign, got, err)
	}
}

func TestFailed(t *testing.T) {
	s := Status{FailedChecksum: "aa", FailureCount: 2}
	for threshold, want := range map[int]bool{Unlimited: false, 0: true, 1: true, 2: true, 3: false} {
		if s.Failed("aa", threshold) != want || s.Failed("bb", threshold) {
			t.Errorf("threshold %d: got %t", threshold, s.Failed("aa", threshold))
		}
	}
}

func FuzzDecodeStatus(f *testing.F) {
	data := SecretData{KeyPlan: []byte("{}"), KeyMaxFailures: []byte("3"), KeyProbePeriodSeconds: []byte("0.5")}
	if err := fullStatus().WriteTo(data); err != nil {
		f.Fatal(err)
	}
	for key, value := range data {
		f.Add(key, value)
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		data := SecretData{key: value}
		_ = DecodeDelivery(data)
		status, err := DecodeStatus(data)
		if err != nil {
			return
		}
		if err := status.WriteTo(data); err != nil {
			t.Fatal(err)
		}
		again, err := DecodeStatus(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(status, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecompress(f *testing.F) {
	seed, err := compress([]byte(`{"a":"Yg=="}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if plain, err := decompress(raw); err == nil && len(plain) > MaxValueBytes {
			t.Fatalf("%d bytes came out", len(plain))
		}
	})
}
