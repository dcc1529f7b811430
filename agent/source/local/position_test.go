package local

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// onePlan is a plan of a folder without a running Directory.
func onePlan(t *testing.T, text, position string) *Plan {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plans")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := New(Options{Path: dir, StateDirectory: t.TempDir(), Host: host.Local{}, Log: slog.New(slog.DiscardHandler)})
	for name, content := range map[string]string{"a.plan": text, "a.pos": position} {
		if content == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := newPlan(d, "a")
	p.refresh()
	return p
}

// TestPositionOfTheOldAgent shows that a node can be moved in either direction: what rancher-system-agent wrote is read, and what is
// written is what it reads.
func TestPositionOfTheOldAgent(t *testing.T) {
	text := plan("1")
	checksum := plans.Checksum([]byte(text))
	old := `{"appliedChecksum":"` + checksum + `","output":"` + zipped(`{"one":"aGVsbG8="}`) +
		`","probeStatus":{"p":{"healthy":true,"successCount":1}},` +
		`"periodicOutput":"` + zipped(`{"per":{"name":"per","stdout":"eA==","stderr":null,"exitCode":0,"lastSuccessfulRunTime":"Mon Jan  2 `+
		`15:04:05 UTC 2006","failures":0,"lastFailedRunTime":""}}`) + "\"}\n"
	p := onePlan(t, text, old)
	got, err := p.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := source.Snapshot{
		UID: "local/a", Local: true,
		Delivery: plans.Delivery{Plan: []byte(text), MaxFailures: plans.Unlimited, ProbePeriod: 5 * time.Second},
		Status: plans.Status{
			AppliedChecksum: checksum, AppliedOutput: map[string][]byte{"one": []byte("hello")},
			ProbeStatuses: map[string]plans.ProbeStatus{"p": {Healthy: true, SuccessCount: 1}},
			PeriodicOutput: map[string]plans.PeriodicOutput{"per": {Name: "per", Stdout: []byte("x"),
				LastSuccessfulRunTime: "Mon Jan  2 15:04:05 UTC 2006"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The counts that only this agent keeps come beside it; all else is as the old agent had it.
	if _, err := p.Update(t.Context(), "local/a", checksum, func(s *plans.Status) { s.SuccessCount = 1 }); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(p.directory.Path, "a.pos"))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSuffix(old, "}\n") + `,"successCount":1}` + "\n"; string(raw) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
	if info, err := os.Stat(filepath.Join(p.directory.Path, "a.pos")); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
}

// TestPositionIsWrittenOnlyWhenItDiffers shows that B19 cannot happen for local plans.
func TestPositionIsWrittenOnlyWhenItDiffers(t *testing.T) {
	p := onePlan(t, plan("1"), "")
	checksum := plans.Checksum([]byte(plan("1")))
	path := filepath.Join(p.directory.Path, "a.pos")
	applied := func(s *plans.Status) { s.AppliedChecksum = checksum }
	if _, err := p.Update(t.Context(), "", checksum, applied); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*plans.Status){applied, func(s *plans.Status) { s.Progress = &plans.Progress{Phase: plans.PhaseFiles} }} {
		if _, err := p.Update(t.Context(), "", checksum, change); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("written again: %v", err)
	}
	if got, err := p.Get(t.Context()); err != nil || got.Status.Progress == nil {
		t.Errorf("the progress is lost: %v", err)
	}
}

func TestPositionThatIsTakenAwayIsNoticed(t *testing.T) {
	p := onePlan(t, plan("1"), `{"appliedChecksum":"x"}`)
	p.deliver()
	<-p.Updates()
	if err := os.Remove(filepath.Join(p.directory.Path, "a.pos")); err != nil {
		t.Fatal(err)
	}
	p.refresh()
	p.deliver()
	select {
	case got := <-p.Updates():
		if got.Status.AppliedChecksum != "" {
			t.Errorf("got %+v", got)
		}
	default:
		t.Error("nothing came")
	}
}

func TestPositionThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nonsense": "hello", "another form": "[]", "wrong types": `{"appliedChecksum":1}`, "no gzip": `{"output":"aGVsbG8="}`,
		"a bomb":       `{"output":"` + zipped(`{"a":"`+strings.Repeat("A", plans.MaxValueBytes)+`"}`) + `"}`, // S10
		"no number":    `{"failureCount":"many"}`,
		"no time":      `{"lastApplyTime":"soon"}`,
		"empty values": `{"appliedChecksum":"","output":null,"probeStatus":null,"periodicOutput":""}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := onePlan(t, plan("1"), text)
			got, err := p.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plans.Status{}, got.Status); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("the rest is kept", func(t *testing.T) {
		p := onePlan(t, plan("1"), `{"appliedChecksum":"x","output":"aGVsbG8="}`)
		if got, err := p.Get(t.Context()); err != nil || got.Status.AppliedChecksum != "x" {
			t.Errorf("got %+v, %v", got.Status, err)
		}
	})
}

func TestUpdateOfAnotherPlan(t *testing.T) {
	p := onePlan(t, plan("1"), "")
	_, err := p.Update(t.Context(), "", plans.Checksum([]byte(plan("2"))), func(*plans.Status) { t.Error("called") })
	if !errors.Is(err, source.ErrSuperseded) {
		t.Errorf("got %v", err)
	}
}

func FuzzPosition(f *testing.F) {
	f.Add([]byte(`{"appliedChecksum":"x","output":"` + zipped(`{"one":"aGVsbG8="}`) +
		`","probeStatus":{"p":{"healthy":true}},"failureCount":3,"lastApplyTime":"Mon Jan  2 15:04:05 UTC 2006"}`))
	f.Add([]byte(`{"probeStatus": { } , "successCount": 1e3}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		data, status, _ := decodePosition(raw)
		again, out, err := encodePosition(data, status)
		if err != nil {
			t.Skip("holds what JSON cannot say")
		}
		read, readStatus, err := decodePosition(out)
		if err != nil || !equal(read, again) {
			t.Fatalf("%s becomes %s: %v", raw, out, err)
		}
		if diff := cmp.Diff(status, readStatus); diff != "" && json.Valid(raw) {
			t.Fatal(diff)
		}
	})
}

func FuzzPlan(f *testing.F) {
	f.Add([]byte(plan("1")))
	f.Add([]byte(`{"files":[{"path":"/a","content":"QQ=="}],"probes":{"p":{"httpGet":{"url":"http://localhost"}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := New(Options{Path: "/plans", Log: slog.New(slog.DiscardHandler)})
		p := newPlan(d, "a")
		p.read = func(name string) ([]byte, error) {
			if name == "a.pos" {
				return nil, os.ErrNotExist
			}
			return raw, nil
		}
		p.refresh()
		got, err := p.Get(t.Context())
		if problem, _ := p.Unreachable(); (problem == "") != (err == nil) || err == nil && !bytes.Equal(got.Delivery.Plan, raw) {
			t.Fatalf("got %+v, %v, %v", got, err, problem)
		}
	})
}
