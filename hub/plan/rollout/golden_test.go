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

// story tells what happens in a world, step by step: what people see, where it has changed, and what happens to hosts.
type story struct {
	*world
	text  strings.Builder
	shown map[string]bool
}

func (s *story) title(format string, args ...any) {
	fmt.Fprintf(&s.text, "# "+format+"\n", args...)
}

// walk goes on for a number of steps.
func (s *story) walk(n int) {
	for range n {
		s.tick()
		s.tell()
	}
}

// tell writes down what has changed since the last step, and reports whether anything has.
func (s *story) tell() bool {
	lines, shown := []string{}, map[string]bool{}
	for _, line := range s.look() {
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
		fmt.Fprintf(&s.text, "[%d]\n    %s\n", s.step, strings.Join(lines, "\n    "))
	}
	return len(lines) > 0
}

// settle goes on until nothing happens any more.
func (s *story) settle(format string, args ...any) {
	s.title(format, args...)
	for quiet := 0; quiet < 6; {
		s.tick()
		if s.tell() {
			quiet = 0
		} else {
			quiet++
		}
		if s.step > 500 {
			s.text.WriteString("does not settle\n")
			return
		}
	}
	s.text.WriteString("\n")
}

// until goes on until something is so.
func (s *story) until(what string, is func() bool) {
	for range 100 {
		if is() {
			return
		}
		s.walk(1)
	}
	s.text.WriteString("never " + what + "\n")
}

func TestStories(t *testing.T) {
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			s := &story{world: newWorld(nil)}
			tell(s)
			if len(s.faults) > 0 {
				t.Errorf("rules were broken:\n%s", strings.Join(s.faults, "\n"))
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(s.text.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), s.text.String()); diff != "" {
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
