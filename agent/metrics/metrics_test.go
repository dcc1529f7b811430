package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

type fakeEngine struct {
	state engine.State
	dead  bool
}

func (e *fakeEngine) State() engine.State  { return e.state }
func (e *fakeEngine) Alive(time.Time) bool { return !e.dead }

func optionsFor(engines ...Engine) Options {
	return Options{Engines: func() []Engine { return engines }, Version: "v1", Log: slog.New(slog.DiscardHandler)}
}

// busy is an engine that has every metric.
func busy() *fakeEngine {
	at := time.Unix(1700000000, 0)
	return &fakeEngine{state: engine.State{
		Source: "hub", Checksum: "abc", PlanState: plans.StateFailed, Revision: 3, Phase: engine.PhaseWaiting, Unreported: true,
		Contacted:   true,
		SourceError: "away", SourceErrorSince: at,
		Last:        &journal.Attempt{Number: 2, Started: at, Ended: at.Add(1500 * time.Millisecond)},
		Probes:      map[string]plans.ProbeStatus{"kubelet": {Healthy: true}, "etcd": {}},
		Periodic:    map[string]engine.Periodic{"never": {Failures: 4}, "names": {LastSuccess: at}},
		Connections: &source.Connections{Reconnects: 21, Registrations: 22, RegistrationsFailed: 23, AuthoritiesReplaced: 24},
		Counters: engine.Counters{AttemptsSucceeded: 1, AttemptsFailed: 2, InstructionsRun: 5, InstructionsResumed: 1, ReportsSent: 7,
			ReportsFailed: 8, PeriodicRuns: 10, PeriodicFailures: 4, ProbeChecks: 20, ProbeFailures: 5, AttemptSecondsTotal: 12.5},
	}}
}

func get(t *testing.T, handler http.Handler, method, path string) (int, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	return recorder.Code, recorder.Body.String()
}

func parser() *expfmt.TextParser {
	p := expfmt.NewTextParser(model.UTF8Validation)
	return &p
}

func TestMetrics(t *testing.T) {
	local := &fakeEngine{state: engine.State{Source: "a.plan", Phase: engine.PhaseIdle}, dead: true}
	twice := &fakeEngine{state: engine.State{Source: "a.plan"}}
	code, text := get(t, Handler(optionsFor(busy(), local, twice)), http.MethodGet, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("got %d: %s", code, text)
	}
	var got []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "system_agent_") && (!strings.Contains(line, "a.plan") || strings.Contains(line, "alive")) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if _, err := parser().TextToMetricFamilies(strings.NewReader(text)); err != nil {
		t.Errorf("Prometheus cannot read it: %v", err)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("Prometheus finds fault: %v, %v", problems, err)
	}
	want := []string{
		`system_agent_alive{source="a.plan"} 0`,
		`system_agent_alive{source="hub"} 1`,
		`system_agent_attempt_seconds_total{source="hub"} 12.5`,
		`system_agent_attempts_total{source="hub",outcome="failure"} 2`,
		`system_agent_attempts_total{source="hub",outcome="success"} 1`,
		`system_agent_authorities_replaced_total{source="hub"} 24`,
		`system_agent_doing{source="hub",doing="applying"} 0`,
		`system_agent_doing{source="hub",doing="canceled"} 0`,
		`system_agent_doing{source="hub",doing="idle"} 0`,
		`system_agent_doing{source="hub",doing="paused"} 0`,
		`system_agent_doing{source="hub",doing="refusing"} 0`,
		`system_agent_doing{source="hub",doing="waiting"} 1`,
		`system_agent_info{version="v1"} 1`,
		`system_agent_instructions_resumed_total{source="hub"} 1`,
		`system_agent_instructions_total{source="hub"} 5`,
		`system_agent_last_attempt_end_timestamp_seconds{source="hub"} 1.7000000015e+09`,
		`system_agent_last_attempt_number{source="hub"} 2`,
		`system_agent_last_attempt_start_timestamp_seconds{source="hub"} 1.7e+09`,
		`system_agent_last_attempt_succeeded{source="hub"} 0`,
		`system_agent_outcome_unreported{source="hub"} 1`,
		`system_agent_periodic_consecutive_failures{source="hub",instruction="names"} 0`,
		`system_agent_periodic_consecutive_failures{source="hub",instruction="never"} 4`,
		`system_agent_periodic_last_success_timestamp_seconds{source="hub",instruction="names"} 1.7e+09`,
		`system_agent_periodic_runs_total{source="hub",outcome="failure"} 4`,
		`system_agent_periodic_runs_total{source="hub",outcome="success"} 6`,
		`system_agent_plan_info{source="hub",checksum="abc",state="failed"} 1`,
		`system_agent_plan_revision{source="hub"} 3`,
		`system_agent_probe_checks_total{source="hub",outcome="failure"} 5`,
		`system_agent_probe_checks_total{source="hub",outcome="success"} 15`,
		`system_agent_probe_healthy{source="hub",probe="etcd"} 0`,
		`system_agent_probe_healthy{source="hub",probe="kubelet"} 1`,
		`system_agent_reconnects_total{source="hub"} 21`,
		`system_agent_registrations_total{source="hub",outcome="failure"} 23`,
		`system_agent_registrations_total{source="hub",outcome="success"} 22`,
		`system_agent_reports_total{source="hub",outcome="failure"} 8`,
		`system_agent_reports_total{source="hub",outcome="success"} 7`,
		`system_agent_source_connected{source="hub"} 0`,
		`system_agent_source_error_since_timestamp_seconds{source="hub"} 1.7e+09`,
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestPage checks that docs/agent.md lists every metric.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	// The page shortens names of one family: a, _b.
	_, text := get(t, Handler(optionsFor(busy())), http.MethodGet, "/metrics")
	for line := range strings.Lines(text) {
		name, found := strings.CutPrefix(line, "# TYPE ")
		name, _, _ = strings.Cut(name, " ")
		short := "`" + strings.TrimPrefix(name, "system_agent_last_attempt") + "`"
		if found && !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), short) {
			t.Errorf("%s is not in docs/agent.md", name)
		}
	}
}

// TestLabelsOfAnyBytes shows that a plan cannot make the metrics fail as a whole.
func TestLabelsOfAnyBytes(t *testing.T) {
	e := busy()
	e.state.Probes = map[string]plans.ProbeStatus{"\xff": {}, "two\nlines\"\\": {}}
	_, text := get(t, Handler(optionsFor(e)), http.MethodGet, "/metrics")
	families, err := parser().TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range families["system_agent_probe_healthy"].Metric {
		for _, label := range m.Label {
			if label.GetName() == "probe" {
				got = append(got, label.GetValue())
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"two\nlines\"\\", "\uFFFD"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestHealth(t *testing.T) {
	well := &fakeEngine{state: engine.State{Source: "hub", Contacted: true}}
	fresh := &fakeEngine{state: engine.State{Source: "hub"}}
	hung := &fakeEngine{state: engine.State{Source: "b.plan", Contacted: true}, dead: true}
	tests := map[string]struct {
		engines        []Engine
		healthy, ready string
	}{
		"well":            {[]Engine{well}, "ok\n", "ok\n"},
		"hub unreachable": {[]Engine{busy()}, "ok\n", "hub is unreachable since 2023-11-14T22:13:20Z\n"},
		"just started":    {[]Engine{well, fresh}, "ok\n", "hub has not been reached yet\n"},
		"engine hangs":    {[]Engine{well, hung}, "engine of b.plan does not respond\n", "engine of b.plan does not respond\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			handler := Handler(optionsFor(test.engines...))
			for path, want := range map[string]string{"/healthz": test.healthy, "/readyz": test.ready} {
				code, got := get(t, handler, http.MethodGet, path)
				if got != want || (code == http.StatusOK) != (want == "ok\n") {
					t.Errorf("%s: got %d %q, want %q", path, code, got, want)
				}
			}
		})
	}
	if code, _ := get(t, Handler(optionsFor(well)), http.MethodPost, "/healthz"); code != http.StatusMethodNotAllowed {
		t.Errorf("POST gives %d", code)
	}
	if code, _ := get(t, Handler(optionsFor(well)), http.MethodGet, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("an unknown path gives %d", code)
	}
}

func TestServe(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "run", "metrics.sock")
	options := optionsFor(busy())
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, config.MetricsAddress{Socket: socket}, options) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	resp, err := client.Get("http://agent/healthz")
	for ; err != nil && t.Context().Err() == nil && len(served) == 0; resp, err = client.Get("http://agent/healthz") {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "ok\n" {
		t.Errorf("got %q, %v", body, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := config.MetricsAddress{TCP: taken.Addr().String()}
	var opErr *net.OpError
	if err := Serve(t.Context(), address, options); !errors.As(err, &opErr) ||
		!strings.Contains(err.Error(), "metricsAddress "+address.TCP) {
		t.Errorf("got %v", err)
	}
}
