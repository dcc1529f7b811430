package figures

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"
)

// TestReadMetrics: reads are not counted, and a core resource has no group.
func TestReadMetrics(t *testing.T) {
	const metrics = `# TYPE etcd_requests_total counter
etcd_requests_total{group="",operation="create",resource="secrets"} 3
etcd_requests_total{group="",operation="update",resource="secrets"} 4
etcd_requests_total{group="",operation="get",resource="secrets"} 100
etcd_requests_total{group="cluster.x-k8s.io",operation="delete",resource="machines"} 1
# TYPE go_gc_heap_live_bytes gauge
go_gc_heap_live_bytes 1.5e+06
`
	var s Sample
	if err := s.ReadMetrics(strings.NewReader(metrics)); err != nil {
		t.Fatal(err)
	}
	want := Sample{Heap: 1500000, Writes: map[string]float64{"secrets": 7, "machines.cluster.x-k8s.io": 1}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Error(diff)
	}
	if err := s.ReadMetrics(strings.NewReader("up 1\n")); err == nil {
		t.Error("metrics of something else were accepted")
	}
}

// TestReadAudit: what was read, what has only begun and what is not complete yet do not count, and the period ends before its last moment.
func TestReadAudit(t *testing.T) {
	line := func(stage, verb, uri string, code int, at string) string {
		return fmt.Sprintf(`{"stage":%q,"verb":%q,"requestURI":%q,"userAgent":"capd/v1 (linux)","objectRef":{"resource":"machines",`+
			`"subresource":"status"},"responseStatus":{"code":%d},"stageTimestamp":%q}`+"\n", stage, verb, uri, code, "2026-01-01T00:00:"+at+"Z")
	}
	log := line("ResponseComplete", "patch", "/a?fieldManager=drover-bootstrap", 200, "10.5") +
		line("ResponseComplete", "patch", "/a?fieldManager=drover-bootstrap", 200, "11") +
		line("ResponseComplete", "patch", "/a", 409, "12") +
		line("ResponseStarted", "patch", "/a", 200, "12") +
		line("ResponseComplete", "list", "/a", 200, "12") +
		line("ResponseComplete", "patch", "/a", 200, "09") +
		line("ResponseComplete", "patch", "/a", 200, "20") + `{"stage":`
	from := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
	got, err := ReadAudit(strings.NewReader(log), from, from.Add(10*time.Second))
	want := map[string]float64{"drover-bootstrap: patch machines/status, 200": 2, "capd: patch machines/status, 409": 1}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := ReadAudit(strings.NewReader("no JSON\n"), from, from); err == nil {
		t.Error("a log of something else was read")
	}
}

// TestReadProfile: the outermost function of a known package decides, and the garbage collector does not count.
func TestReadProfile(t *testing.T) {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}}
	sample := func(seconds int64, fromRoot ...string) {
		s := &profile.Sample{Value: []int64{1, seconds * int64(time.Second)}}
		for _, name := range fromRoot {
			f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name}
			l := &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
			p.Function, p.Location = append(p.Function, f), append(p.Location, l)
			s.Location = append([]*profile.Location{l}, s.Location...)
		}
		p.Sample = append(p.Sample, s)
	}
	const drover = "github.com/drover-dev/drover/hub/"
	sample(1, "sigs.k8s.io/controller-runtime/pkg/internal/controller.(*Controller).Start", drover+"controllers/x.(*Reconciler).Reconcile",
		"k8s.io/apiserver/pkg/util.Helper")
	sample(2, drover+"server/embedded.Start", "k8s.io/kubernetes/pkg/x.Run", drover+"gateway.helper")
	sample(4, drover+"server.run", "sigs.k8s.io/cluster-api/core.Run")
	sample(8, "net/http.(*conn).serve", "runtime.mallocgc")
	sample(16, "runtime.gcBgMarkWorker", "runtime.gcDrain")
	sample(32, "net/http.(*conn).serve", drover+"gateway.(*server).ServeHTTP")
	var raw bytes.Buffer
	if err := p.Write(&raw); err != nil {
		t.Fatal(err)
	}
	phase := Phase{Usage: Usage{CPU: 94 * time.Second}, Samples: map[string]time.Duration{}}
	if err := ReadProfile(raw.Bytes(), phase.Samples); err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Duration{ShareHub: 66 * time.Second, ShareAPI: 4 * time.Second, ShareClusterAPI: 8 * time.Second,
		ShareRest: 16 * time.Second}
	if diff := cmp.Diff(want, phase.ByShare()); diff != "" {
		t.Error(diff)
	}
	if err := ReadProfile([]byte("no profile"), phase.Samples); err == nil {
		t.Error("something else was read")
	}
}

// TestByHub: what agents report, what others write, and what was refused are not the hub's writes.
func TestByHub(t *testing.T) {
	p := Phase{Writers: map[string]float64{"drover-timeline: create events, 201": 1, "drover-bootstrap: patch secrets, 200": 2,
		"drover-bootstrap: patch secrets, 409": 4, "drover-gateway: patch secrets, 200": 8, "hub: patch machines, 200": 16}}
	if got := p.ByHub(); got != 3 {
		t.Errorf("got %v", got)
	}
}

func TestSince(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before := Sample{Time: began, CPU: time.Second, Revision: 10, Writes: map[string]float64{"a": 1, "b": 2}}
	after := Sample{Time: began.Add(30 * time.Second), CPU: 4 * time.Second, Revision: 25, Resident: 7, Heap: 5,
		Writes: map[string]float64{"a": 1, "b": 12, "c": 5}}
	p := NewPhase(before, after)
	want := Phase{Usage: Usage{Duration: 30 * time.Second, CPU: 3 * time.Second, Writes: 15,
		ByResource: map[string]float64{"b": 10, "c": 5}}, Resident: 7, Heap: 5}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	if p.Cores() != 0.1 || p.WritesPerMinute() != 30 {
		t.Errorf("%v cores, %v writes a minute", p.Cores(), p.WritesPerMinute())
	}
	if got := Top(p.ByResource, 1); !cmp.Equal(got, []string{"b"}) {
		t.Errorf("the most frequent is %v", got)
	}
}

// runs have the same CPU and writes for provisioning, a function of the number of machines.
func runs(cost func(machines float64) float64, sizes ...int) []Run {
	var out []Run
	for _, size := range sizes {
		r := Run{Machines: size, Milestones: []Milestone{{"Machines ready", time.Duration(size) * time.Second}}}
		r.Rest.Duration, r.Rest.Resident = time.Minute, 300<<20
		r.Provision.CPU, r.Provision.Writes = time.Duration(cost(float64(size))*float64(time.Second)), int64(100*cost(float64(size)))
		r.Provision.ByResource = map[string]float64{"secrets": float64(size)}
		out = append(out, r)
	}
	return out
}

func TestEvaluate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cost   func(float64) float64
		faults int
	}{
		{"linear", func(n float64) float64 { return 0.1 * n }, 0},
		{"linear with a large fixed cost", func(n float64) float64 { return 1000 + 0.1*n }, 0},
		{"quadratic", func(n float64) float64 { return 0.001 * n * n }, 2},
		{"quadratic, hidden by a fixed cost", func(n float64) float64 { return 1000 + 0.001*n*n }, 2},
		{"cheaper the more there are", func(n float64) float64 { return 10 - 100/n }, 0},
		{"negligible", func(n float64) float64 { return 0.00001 * n * n }, 0},
		{"nothing at first", func(n float64) float64 { return max(0, n-100) }, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			growth, err := Evaluate(runs(tt.cost, 200, 25, 50, 100), 1.5)
			var notLinear *NotLinearError
			faults := 0
			if errors.As(err, &notLinear) {
				faults = len(notLinear.Faults)
			} else if err != nil {
				t.Fatal(err)
			}
			if faults != tt.faults || len(growth) != len(Figures) {
				t.Errorf("%d faults, want %d: %v", faults, tt.faults, err)
			}
		})
	}
	if _, err := Evaluate(runs(func(float64) float64 { return 1 }, 1, 2), 1.5); err == nil {
		t.Error("two sizes were judged")
	}
}

// TestReport: the page names what was measured and its plots, which are valid XML.
func TestReport(t *testing.T) {
	all := runs(func(n float64) float64 { return 0.1 * n }, 10, 20, 40)
	growth, err := Evaluate(all, 1.5)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "scale.md")
	r := Report{Runs: all, PoolSize: 100, Growth: growth, Limit: 1.5, When: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Machine: "a machine"}
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Measured on 2 January 2026, 03:04 UTC on a machine.", "| machines | 10 | 20 | 40 |\n|---|---|---|---|\n",
		"| Time until Machines ready | 10.00 s | 20.00 s | 40.00 s |", "| Provision: writes | 100 | 200 | 400 |",
		"| CPU to provision s | 0.1 | 0.1 | 1.00 | 1.50 |", "| secrets | 1.0 | 0.0 | 0.0 |", "(scale/provision-cpu.svg)",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for _, f := range Figures {
		plot, err := os.Open(filepath.Join(filepath.Dir(path), "scale", f.File+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		defer plot.Close()
		circles := 0
		for decoder := xml.NewDecoder(plot); ; {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", f.File, err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
				circles++
			}
		}
		if circles != len(all) {
			t.Errorf("%s has %d points", f.File, circles)
		}
	}
}

func TestRoundUp(t *testing.T) {
	for value, want := range map[float64]float64{0: 1, 1: 1, 3: 4, 0.07: 0.08, 120: 200, 900: 1000} {
		if got := roundUp(value); got < want*0.999 || got > want*1.001 {
			t.Errorf("%v is rounded up to %v, want %v", value, got, want)
		}
	}
}
