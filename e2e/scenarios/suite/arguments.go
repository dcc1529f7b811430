package suite

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Arguments are the argument lists of all processes of the machine, those inside hosts included, that were seen since CollectArguments.
type Arguments struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

// CollectArguments looks at all processes ten times a second, until the program ends.
func CollectArguments() *Arguments {
	a := &Arguments{seen: map[string]struct{}{}}
	go func() {
		for {
			a.look()
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return a
}

func (a *Arguments) look() {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil || len(raw) == 0 {
			continue // ended meanwhile, or a thread of the kernel
		}
		a.mu.Lock()
		a.seen[string(raw)] = struct{}{}
		a.mu.Unlock()
	}
}

// With are the programs whose arguments had this text, each by what it was called with before it.
func (a *Arguments) With(text string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for line := range a.seen {
		if before, _, ok := strings.Cut(line, text); ok {
			out = append(out, strings.ReplaceAll(before, "\x00", " ")+"***")
		}
	}
	return out
}

// Len is how many argument lists were seen.
func (a *Arguments) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}
