package run

import (
	"os"
	"strings"
	"sync"
)

const oomScoreFile = "/proc/self/oom_score_adj"

var oomScoreMu sync.Mutex

// withDefaultOOMScore calls start while this process has the OOM score of an ordinary service, which the started program inherits: the
// score that protects the agent (OOMScoreAdjust= of its unit) is not for what it runs. The agent has its own again about a millisecond
// later.
func withDefaultOOMScore(start func() error) error {
	oomScoreMu.Lock()
	defer oomScoreMu.Unlock()
	own, err := os.ReadFile(oomScoreFile)
	if err != nil || strings.TrimSpace(string(own)) == "0" || os.WriteFile(oomScoreFile, []byte("0"), 0) != nil {
		return start()
	}
	defer func() { _ = os.WriteFile(oomScoreFile, own, 0) }()
	return start()
}
