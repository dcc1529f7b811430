//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What an agent of ours may use. The latency of a plan is no test, since it depends on the disk below.
const (
	maxBinary = 25 << 20
	maxMemory = 20 << 20
	// maxCPU is for a minute. Where the kernel takes idle pages from processes, they are read again each time: 40 to 80 ms were seen.
	maxCPU      = 200 * time.Millisecond
	idleDefault = 20 * time.Second
	// plansMeasured is how many plans make a median.
	plansMeasured = 200
)

// usage is what an agent at rest has used since some time.
type usage struct {
	at       time.Time
	memory   int64
	written  int64
	cpu      time.Duration
	requests int
}

func (m *machine) usage() usage {
	pid := strconv.Itoa(m.pid())
	u := usage{at: time.Now(), requests: len(m.proxy.seen())}
	field := func(file, name string) int64 {
		for line := range strings.Lines(m.read(filepath.Join("/proc", pid, file))) {
			if value, found := strings.CutPrefix(line, name+":"); found {
				n, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
				return n
			}
		}
		m.Fatalf("/proc/%s/%s does not tell %s", pid, file, name)
		return 0
	}
	u.memory, u.written = field("status", "VmRSS")<<10, field("io", "write_bytes")
	threads, _ := filepath.Glob(filepath.Join("/proc", pid, "task/*/schedstat"))
	for _, thread := range threads { // in nanoseconds, where /proc/<pid>/stat counts in hundredths of a second
		n, _ := strconv.ParseInt(strings.Fields(m.read(thread) + " 0")[0], 10, 64)
		u.cpu += time.Duration(n)
	}
	return u
}

// rest lets an agent apply a plan and then rest, for so many times as long as IDLE says, and tells what it used at rest.
func (m *machine) rest(times int) (used usage, took time.Duration) {
	idle := idleDefault
	if text := os.Getenv("IDLE"); text != "" {
		var err error
		if idle, err = time.ParseDuration(text); err != nil {
			m.Fatalf("IDLE: %s", err)
		}
	}
	idle *= time.Duration(times)
	m.env = append(m.env, "CATTLE_LOGLEVEL=info")
	m.run(both(m.files(m.file("f", "x")), instructions(sh("a", "echo a"))), pendingState)
	time.Sleep(min(15*time.Second, idle)) // until the watch is settled
	before := m.usage()
	time.Sleep(idle)
	after := m.usage()
	return usage{memory: after.memory, written: after.written - before.written, cpu: after.cpu - before.cpu,
		requests: after.requests - before.requests}, after.at.Sub(before.at)
}

func binarySize(t testing.TB) int64 {
	info, err := os.Stat(options.agent)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// guarded runs something that may end by Fatalf, and fails the test with what was found.
func guarded(t testing.TB, do func(*machine)) {
	t.Helper()
	m := newMachine(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do(m)
	}()
	<-ended
	m.end()
	if problems := m.problems(); len(problems) > 0 {
		t.Fatalf("%s\n%s", strings.Join(problems, "\n"), m.explain())
	}
}

// TestLimits shows that our own agent stays small. Others are not asked.
func TestLimits(t *testing.T) {
	if !options.strict {
		t.Skip("only our own agent is held to its limits; STRICT=1 asks another one too")
	}
	if size := binarySize(t); size > maxBinary {
		t.Errorf("the binary has %d bytes and may have %d", size, maxBinary)
	}
	guarded(t, func(m *machine) {
		// Where a process stands still for some seconds the agent has something to do for once. What it does now and then is seen the longer it
		// is looked at.
		for tries := 1; ; tries++ {
			too := tooMuch(m.rest(1 << (tries - 1)))
			if len(too) == 0 {
				return
			}
			if tries == 3 {
				m.Errorf("%s", strings.Join(too, "; "))
				return
			}
			t.Logf("once more, because %s", strings.Join(too, "; "))
		}
	})
}

// tooMuch says what an agent at rest has used of which it may not use so much.
func tooMuch(used usage, took time.Duration) (too []string) {
	if used.memory > maxMemory {
		too = append(too, fmt.Sprintf("it uses %d bytes of memory and may use %d", used.memory, maxMemory))
	}
	if used.written > 0 {
		too = append(too, fmt.Sprintf("it wrote %d bytes to the disk at rest", used.written))
	}
	if used.requests > 0 {
		too = append(too, fmt.Sprintf("it made %d requests at rest", used.requests))
	}
	// A run is short and the machine may be busy with others: three times the limit is what a change for the worse would show.
	if perMinute := time.Duration(float64(used.cpu) / took.Minutes()); perMinute > 3*maxCPU {
		too = append(too, fmt.Sprintf("it used %s of CPU time a minute and may use %s", perMinute, maxCPU))
	}
	return too
}

// BenchmarkAgentIdle measures an agent at rest, for as long as IDLE says.
func BenchmarkAgentIdle(b *testing.B) {
	guarded(b, func(m *machine) {
		used, took := m.rest(1)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(binarySize(b))/(1<<20), "binary-MiB")
		b.ReportMetric(float64(used.memory)/(1<<20), "RSS-MiB")
		b.ReportMetric(float64(used.written)/took.Minutes(), "written-B/min")
		b.ReportMetric(float64(used.requests)/took.Minutes(), "requests/min")
		b.ReportMetric(float64(used.cpu)/float64(time.Millisecond)/took.Minutes(), "CPU-ms/min")
	})
}

// BenchmarkAgentPlan measures from the moment that a plan of one echo is written to the API server until its result is seen there. The
// agent's journal is on the disk of the temporary folder. The cost of the API server alone is measured beside it: the same writes and
// watches, answered by somebody who does nothing else.
func BenchmarkAgentPlan(b *testing.B) {
	for _, protocol := range []struct {
		name string
		keys map[string]string
	}{{"plan-state", pendingState}, {"checksum", nil}} {
		b.Run(protocol.name, func(b *testing.B) {
			guarded(b, func(m *machine) {
				m.direct()
				m.run(instructions(sh("a", "echo first")), protocol.keys)
				m.latency(b, protocol.keys)
			})
		})
		b.Run(protocol.name+"-without-an-agent", func(b *testing.B) {
			guarded(b, func(m *machine) {
				m.deliver(instructions(sh("a", "echo first")), protocol.keys)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				go m.answer(ctx)
				m.latency(b, protocol.keys)
			})
		})
	}
}

// latency reports how long plans take.
func (m *machine) latency(b *testing.B, keys map[string]string) {
	var took []time.Duration
	for i := range plansMeasured * b.N {
		time.Sleep(50 * time.Millisecond) // the agent clears up after the plan before
		took = append(took, m.timed(i, keys))
	}
	slices.Sort(took)
	at := func(percent int) float64 {
		return float64(took[(len(took)-1)*percent/100]) / float64(time.Millisecond)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(at(50), "median-ms")
	b.ReportMetric(at(95), "p95-ms")
	b.ReportMetric(at(100), "worst-ms")
}

// answer does what any agent must ask of the API server, and nothing else: it watches, reads where a plan has no state, sets in-progress
// where it has one, and reports.
func (m *machine) answer(ctx context.Context) {
	secrets := api.client.CoreV1().Secrets(m.namespace)
	w, err := secrets.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + secretName})
	if err != nil {
		m.Errorf("%s", err)
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		secret, ok := event.Object.(*corev1.Secret)
		if !ok || state.applied(state{secret, time.Now()}, checksum(string(secret.Data["plan"]))) {
			continue
		}
		switch string(secret.Data["plan-state"]) {
		case "":
			secret, err = secrets.Get(ctx, secretName, metav1.GetOptions{})
		case "pending":
			secret.Data["plan-state"] = []byte("in-progress")
			secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		default:
			continue
		}
		if err == nil {
			if len(secret.Data["plan-state"]) > 0 {
				secret.Data["plan-state"] = []byte("succeeded")
			}
			secret.Data["applied-checksum"] = []byte(checksum(string(secret.Data["plan"])))
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) { // after a conflict comes the next event
			m.Errorf("%s", err)
			return
		}
	}
}

// direct connects the agent to the API server itself.
func (m *machine) direct() {
	ca := api.config.CAData
	if len(ca) == 0 {
		ca = []byte(m.read(api.config.CAFile))
	}
	m.connect(api.config.Host, ca, m.token())
}

// timed delivers a plan and waits for its result.
func (m *machine) timed(i int, keys map[string]string) time.Duration {
	secrets := api.client.CoreV1().Secrets(m.namespace)
	next, err := secrets.Get(context.Background(), secretName, metav1.GetOptions{})
	if err != nil {
		m.Fatalf("%s", err)
	}
	plan := encode(instructions(obj{"name": "a", "command": "echo", "args": []string{fmt.Sprint(i)}, "saveOutput": true}))
	next.Data["plan"] = []byte(plan)
	for key, value := range keys {
		next.Data[key] = []byte(value)
	}
	begun, sum := time.Now(), checksum(plan)
	if _, err := secrets.Update(context.Background(), next, metav1.UpdateOptions{}); err != nil {
		m.Fatalf("%s", err)
	}
	m.until("the result", func(s state) bool { return s.applied(sum) })
	// The result was seen when the watch told, which may be a little before now.
	for _, s := range m.history() {
		if s.at.After(begun) && s.applied(sum) {
			return s.at.Sub(begun)
		}
	}
	return time.Since(begun)
}
