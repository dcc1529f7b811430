//go:build conformance

package conformance

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// rule is one sentence of the specification.
type rule struct {
	// name is the section, the subject, and the rule.
	name string
	// better names the fault or the limit of the first agent of this kind that an agent has to be free of to pass; another agent that
	// fails here still conforms. Empty means that the rule is part of the contract.
	better string
	// timed says that the rule holds an agent to a time. Any process may stand still for some seconds just then, so that an agent that is
	// expected to keep the rule has three tries, each on a machine of its own. So has, for the same reason, an agent that is known to lack
	// any rule: what stands still does nothing that is forbidden.
	timed bool
	test  func(*machine)
}

// rules are those of all files of this package.
var rules []rule

// TestConformance runs all rules side by side.
func TestConformance(t *testing.T) {
	results := &report{begun: time.Now()}
	t.Run("rules", func(t *testing.T) {
		for _, r := range rules {
			t.Run(r.name, func(t *testing.T) { r.run(t, results) })
		}
	})
	results.print(os.Stdout)
}

func TestRulesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rules {
		if seen[r.name] || strings.Count(r.name, "/") < 2 || strings.ContainsAny(r.name, " _") {
			t.Errorf("%q is no good name, or there are two of it", r.name)
		}
		seen[r.name] = true
	}
}

func (r rule) run(t *testing.T, results *report) {
	t.Parallel()
	m := r.evaluate(t)
	for tries := 1; tries < 3 && r.unexpected(m.problems()); tries++ {
		t.Logf("once more, since a process may have stood still: %s", strings.Join(m.problems(), "; "))
		m = r.evaluate(t)
	}
	problems := m.problems()
	switch known := options.known[r.name]; {
	case len(problems) == 0 && known == lacks:
		results.add(r, passed)
		t.Errorf("it passes, and KNOWN says that it does not: remove it there")
	case len(problems) == 0:
		results.add(r, passed)
	case known != keeps || r.better != "" && !options.strict && options.known == nil:
		results.add(r, lacking)
		t.Skipf("not better than the first agent (%s): %s", r.better, strings.Join(problems, "; "))
	default:
		results.add(r, failed)
		t.Errorf("%s\n%s", strings.Join(problems, "\n"), m.explain())
	}
}

// unexpected reports whether a process that stood still may be why these are the rule's problems.
func (r rule) unexpected(problems []string) bool {
	switch options.known[r.name] {
	case keeps:
		return r.timed && len(problems) > 0
	case lacks:
		return len(problems) == 0
	default:
		return false
	}
}

// evaluate runs the rule once, on a machine that has the problems.
func (r rule) evaluate(t *testing.T) *machine {
	m := newMachine(t)
	if options.known[r.name] != keeps {
		m.patience = min(m.patience, knownPatience)
	}
	ended := make(chan struct{})
	go func() { // in a goroutine of its own, which Fatalf may end
		defer close(ended)
		r.test(m)
	}()
	<-ended
	m.end()
	return m
}

// recorder collects what a rule finds wrong, since a rule that is not part of the contract must not fail the run.
type recorder struct {
	mu    sync.Mutex
	found []string
}

// Errorf notes a problem.
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, file, line, _ := runtime.Caller(1)
	for depth := 2; strings.HasSuffix(file, "machine_test.go") || strings.HasSuffix(file, "rule_test.go") ||
		strings.HasSuffix(file, "secret_test.go"); depth++ {
		_, file, line, _ = runtime.Caller(depth)
	}
	r.found = append(r.found, fmt.Sprintf("%s:%d: ", file[strings.LastIndexByte(file, '/')+1:], line)+fmt.Sprintf(format, args...))
}

// Fatalf notes a problem and ends the rule.
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.found)
}

// result is how a rule came out.
type result int

const (
	passed result = iota
	failed
	// lacking is a failure that another agent may have.
	lacking
)

// report counts verdicts by section.
type report struct {
	begun time.Time

	mu       sync.Mutex
	sections map[string]*[2][3]int
	missing  []string
}

func (r *report) add(of rule, v result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	section, _, _ := strings.Cut(of.name, "/")
	if r.sections == nil {
		r.sections = map[string]*[2][3]int{}
	}
	if r.sections[section] == nil {
		r.sections[section] = &[2][3]int{}
	}
	kind := 0
	if of.better != "" {
		kind = 1
	}
	r.sections[section][kind][v]++
	if v != passed {
		r.missing = append(r.missing, fmt.Sprintf("%s %s %s", map[result]string{failed: "FAILED ", lacking: "lacking"}[v], of.name, of.better))
	}
}

func (r *report) print(w io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.missing)
	fmt.Fprintf(w, "\nagent: %s\n\n", options.agent)
	for _, line := range r.missing {
		fmt.Fprintln(w, line)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "section\tcontract passed\tfailed\tbetter passed\tlacking\t")
	var sum [4]int
	names := make([]string, 0, len(r.sections))
	for name := range r.sections {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		s := r.sections[name]
		row := [4]int{s[0][passed], s[0][failed], s[1][passed], s[1][lacking] + s[1][failed]}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t\n", name, row[0], row[1], row[2], row[3])
		for i := range sum {
			sum[i] += row[i]
		}
	}
	fmt.Fprintf(table, "all\t%d\t%d\t%d\t%d\t\n", sum[0], sum[1], sum[2], sum[3])
	table.Flush()
	fmt.Fprintf(w, "after %s\n", time.Since(r.begun).Round(time.Second))
}
