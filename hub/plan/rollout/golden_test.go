package rollout

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// scenario logs a simulation step by step: the messages that have changed, and what happens to hosts.
type scenario struct {
	*simulation
	log   strings.Builder
	shown map[string]bool
}

func (s *scenario) title(format string, args ...any) {
	fmt.Fprintf(&s.log, "# "+format+"\n", args...)
}

// runSteps runs a number of steps.
func (s *scenario) runSteps(n int) {
	for range n {
		s.tick()
		s.logChanges()
	}
}

// logChanges logs what has changed since the last step, and returns whether anything has.
func (s *scenario) logChanges() bool {
	lines, shown := []string{}, map[string]bool{}
	for _, line := range s.messages() {
		shown[line] = true
		if !s.shown[line] {
			lines = append(lines, line)
		}
	}
	s.shown = shown
	for _, event := range s.events {
		lines = append(lines, "  * "+event)
	}
	s.events = nil
	if len(lines) > 0 {
		fmt.Fprintf(&s.log, "[%d]\n    %s\n", s.step, strings.Join(lines, "\n    "))
	}
	return len(lines) > 0
}

// converge logs a title and runs until nothing changes any more.
func (s *scenario) converge(format string, args ...any) {
	s.title(format, args...)
	for quiet := 0; quiet < 6; {
		s.tick()
		if s.logChanges() {
			quiet = 0
		} else {
			quiet++
		}
		if s.step > 500 {
			s.log.WriteString("does not converge\n")
			return
		}
	}
	s.log.WriteString("\n")
}

// runUntil runs until the condition is true; what names it.
func (s *scenario) runUntil(what string, condition func() bool) {
	for range 100 {
		if condition() {
			return
		}
		s.runSteps(1)
	}
	s.log.WriteString("never " + what + "\n")
}

func TestScenarios(t *testing.T) {
	for name, run := range scenarios {
		t.Run(name, func(t *testing.T) {
			s := &scenario{simulation: newSimulation(nil)}
			run(s)
			if len(s.faults) > 0 {
				t.Errorf("rules were broken:\n%s", strings.Join(s.faults, "\n"))
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(s.log.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), s.log.String()); diff != "" {
				t.Errorf("%s differs; go test -update rewrites it (-want +got):\n%s", path, diff)
			}
		})
	}
}

// The order in which machines are listed changes nothing.
func TestOrderOfMachines(t *testing.T) {
	in := Inputs{Bootstrapped: true, WorkerConcurrency: "2"}
	for i := range 9 {
		m := member(fmt.Sprint("m", i), []string{"ecw", "c", "w"}[i%3])
		m.Change, m.Init = ChangeRestart, i == 0
		in.Machines = append(in.Machines, m)
	}
	want := Decide(in)
	for seed := range uint64(50) {
		shuffled := in
		shuffled.Machines = slices.Clone(in.Machines)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(in.Machines), func(i, j int) {
			shuffled.Machines[i], shuffled.Machines[j] = shuffled.Machines[j], shuffled.Machines[i]
		})
		if diff := cmp.Diff(want, Decide(shuffled)); diff != "" {
			t.Fatalf("in order %d: %s", seed, diff)
		}
	}
}
